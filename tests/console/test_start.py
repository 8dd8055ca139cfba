"""Starting a run from the form made of its input schema."""

from __future__ import annotations

import pytest

from runs.models import Run
from tests.factories import make_tenant

ADDRESS = "/runs/start/"
FILLED = {"workflow": "simple", "tenant": "acme", "in.customer": "Miller", "once": "c-1"}

pytestmark = pytest.mark.usefixtures("simple")


def test_form_asks_for_what_the_schema_names_with_its_defaults(signed_in):
    page = signed_in("operator").get(ADDRESS).content.decode()
    assert 'name="in.customer" value="" required' in page
    assert 'name="in.amount" value="3"' in page
    assert 'type="checkbox" name="in.urgent"' in page
    assert ">[]</textarea>" in page


def test_started_run_has_the_typed_input_and_its_page_opens(signed_in):
    typed = FILLED | {"in.amount": "7", "in.urgent": "on", "in.lines": '["a", "b"]'}
    answer = signed_in("operator").post(ADDRESS, typed)
    run = Run.objects.get()
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert run.created_by == "operator"
    assert run.checkpoints.get().state == '{"customer":"Miller","amount":7,"urgent":true,"lines":["a","b"]}'


def test_double_click_starts_one_run(signed_in):
    operator = signed_in("operator")
    assert operator.post(ADDRESS, FILLED)["Location"] == operator.post(ADDRESS, FILLED)["Location"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [({"in.amount": "many"}, "it wants a whole number"), ({"in.amount": "1.5"}, "amount"),
     ({"in.lines": "[1]"}, "lines"),
     ({"in.lines": "[" * 5000}, "it wants JSON"), ({"in.amount": "9" * 40}, "amount"), ({"key": "a\nb"}, "key")],
)  # fmt: skip
def test_input_that_does_not_fit_is_refused_and_stays_in_the_form(signed_in, typed, complaint):
    answer = signed_in("operator").post(ADDRESS, FILLED | typed)
    page = answer.content.decode()
    assert (answer.status_code, Run.objects.count()) == (422, 0)
    assert complaint in page
    assert 'value="Miller"' in page


def test_same_key_with_other_input_is_a_conflict(signed_in):
    operator = signed_in("operator")
    operator.post(ADDRESS, FILLED | {"key": "k"})
    assert operator.post(ADDRESS, FILLED | {"key": "k", "in.amount": "9"}).status_code == 409
    assert Run.objects.count() == 1


def test_nobody_starts_runs_of_a_tenant_they_do_not_belong_to(signed_in):
    make_tenant()
    assert signed_in("stranger").post(ADDRESS, FILLED).status_code == 404
    assert signed_in("viewer").post(ADDRESS, FILLED).status_code == 403
    assert Run.objects.count() == 0

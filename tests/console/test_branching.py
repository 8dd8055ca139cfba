"""Going back and forking from the pages: consequences first, an edited state as a difference, stale pages refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.urls import reverse

from durableops import Fatal, Retry, State, step, workflow
from durableops.authoring import registry
from durableops.checkpoints.states import encode_state
from durableops.engine.plans import plan_id
from runs.models import AuditEntry, Checkpoint, Run
from tests.factories import make_effect, make_run

HTMX = {"HX-Request": "true"}


class Trip(State):
    n: int = 0
    password: str = ""
    names: list[str] = []


@pytest.fixture
def trip(db):
    """A failed run of a workflow that this process knows, with one call after its start."""
    from django.db import connection

    from runs.models import WorkflowPlan

    with registry.isolated():

        @workflow(name="trip", version=1, state=Trip)
        class TripWorkflow:
            @step(retry=Retry(max_attempts=1))
            def first(run: Any):
                raise Fatal("no")

        with connection.cursor() as cursor:
            plan = WorkflowPlan.objects.get(pk=plan_id(cursor, registry.workflow("trip")))
        state = encode_state(Trip(n=3, password="sw0rdfish", names=["a"]))
        run = make_run(state="failed", workflow="trip", plan=plan, state_json=state, error_class="X")
        make_effect(run, state="succeeded", tool="book", resource="hotel", result="1")
        yield run


def ask(browser: Any, run: Run, verb: str, **given: Any) -> Any:
    address = reverse("console:branch", args=[run.pk, 0, verb])
    return browser.post(address, given) if given else browser.get(address)


def form_of(answer: Any) -> dict[str, str]:
    """The hidden fields and the state of a dialog."""
    text = answer.content.decode()
    found = dict(re.findall(r'<input type="hidden" name="(plan_hash|once|compared)" value="([^"]*)"', text))
    if state := re.search(r"<textarea[^>]*id=\"state\"[^>]*>(.*?)</textarea>", text, re.DOTALL):
        import html

        found["state"] = html.unescape(state[1])
    return {**found, "reason": "because"}


def test_dialog_says_what_is_reused_and_goes_back(signed_in, trip):
    operator = signed_in("operator")
    answer = ask(operator, trip, "retry-from")
    text = answer.content.decode()
    assert "1 call of <b>book</b> (keyed): answered from the record and <b>not sent again</b>" in text
    assert "hotel" in text
    done = ask(operator, trip, "retry-from", **form_of(answer))
    trip.refresh_from_db()
    assert (done.status_code, trip.state, trip.lineage) == (302, "queued", 2)


def test_fork_says_loudly_what_goes_out_again(signed_in, trip):
    text = ask(signed_in("operator"), trip, "fork").content.decode()
    assert "sent again <b>under a new key</b>" in text
    assert "solid-danger" in text


def test_stale_dialog_is_shown_anew_and_nothing_is_done(signed_in, trip):  # C046
    operator = signed_in("operator")
    for verb in ("retry-from", "fork"):
        form = form_of(ask(operator, trip, verb))
        make_effect(trip, state="in_doubt", tool=f"late-{verb}")
        answer = ask(operator, trip, verb, **form)
        text = answer.content.decode()
        assert answer.status_code == 409
        assert "has changed since it was shown" in text
        assert f"<b>late-{verb}</b>" in text
        assert form_of(answer)["plan_hash"] != form["plan_hash"]
    trip.refresh_from_db()
    assert (trip.state, Run.objects.count()) == ("failed", 1)


def test_person_who_comes_second_is_told_what_the_first_did(signed_in, trip):  # C046
    first, second = signed_in("operator"), signed_in("admin")
    form = form_of(ask(second, trip, "retry-from"))
    ask(first, trip, "retry-from", **form_of(ask(first, trip, "retry-from")))
    answer = ask(second, trip, "retry-from", **form)
    assert answer.status_code == 409
    trip.refresh_from_db()
    assert trip.lineage == 2


def test_edited_state_is_a_difference_first_and_a_fork_when_sent_once_more(signed_in, trip):
    operator = signed_in("operator", sees_payloads=True)
    form = form_of(ask(operator, trip, "fork"))
    assert json.loads(form["state"]) == {"n": 3, "password": "••••••", "names": ["a"]}
    form["state"] = form["state"].replace('"n": 3', '"n": 4')
    shown = ask(operator, trip, "fork", **form)
    text = shown.content.decode()
    assert (shown.status_code, Run.objects.count()) == (200, 1)
    assert '<div class="del">-  &quot;n&quot;: 3' in text
    assert '<div class="add">+  &quot;n&quot;: 4' in text
    assert "sw0rdfish" not in form["state"] + text
    done = ask(operator, trip, "fork", **form_of(shown))
    assert done.status_code == 302
    made = Run.objects.exclude(pk=trip.pk).get()
    assert done["Location"] == reverse("console:run", args=[made.pk])
    assert json.loads(Checkpoint.objects.get(run=made, seq=0).state or "") == {
        "n": 4, "password": "sw0rdfish", "names": ["a"]
    }  # fmt: skip
    again = ask(operator, trip, "fork", **form_of(shown))  # a double click
    assert (again["Location"], Run.objects.count()) == (done["Location"], 2)


def test_state_that_changed_after_it_was_compared_is_compared_again(signed_in, trip):
    operator = signed_in("operator", sees_payloads=True)
    form = form_of(ask(operator, trip, "fork"))
    form["state"] = form["state"].replace('"n": 3', '"n": 4')
    shown = form_of(ask(operator, trip, "fork", **form))
    shown["state"] = shown["state"].replace('"n": 4', '"n": 5')
    answer = ask(operator, trip, "fork", **shown)
    assert (answer.status_code, Run.objects.count()) == (200, 1)
    assert "&quot;n&quot;: 5" in answer.content.decode()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("{", "not accepted"), ('{"n": "x"}', "/n"), ('{"m": 1}', "/m"), ("[]", "wants a JSON object")],
)
def test_state_that_does_not_fit_is_refused_with_its_place(signed_in, trip, state, sentence):
    operator = signed_in("operator", sees_payloads=True)
    form = {**form_of(ask(operator, trip, "fork")), "state": state}
    answer = ask(operator, trip, "fork", **form)
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    assert sentence in answer.content.decode()


def test_person_without_payload_sight_forks_and_sees_no_state(signed_in, trip):
    operator = signed_in("operator")
    answer = ask(operator, trip, "fork")
    assert 'id="state"' not in answer.content.decode()
    assert "Editing it needs payload sight" in answer.content.decode()
    assert ask(operator, trip, "fork", **form_of(answer)).status_code == 302
    made = Run.objects.exclude(pk=trip.pk).get()
    assert Checkpoint.objects.get(run=made, seq=0).state == Checkpoint.objects.get(run=trip, seq=0).state


def test_reason_is_wanted(signed_in, trip):
    operator = signed_in("operator")
    form = {**form_of(ask(operator, trip, "retry-from")), "reason": " "}
    assert ask(operator, trip, "retry-from", **form).status_code == 422
    assert not AuditEntry.objects.exists()


def test_checkpoints_offer_what_fits_and_what_the_person_may(signed_in, trip):
    address = reverse("console:run", args=[trip.pk]) + "?tab=checkpoints"
    text = signed_in("operator").get(address).content.decode()
    assert ("Go on from here…" in text, "Fork…" in text) == (True, True)
    text = signed_in("viewer").get(address).content.decode()
    assert ("Go on from here…" in text, "Fork…" in text) == (False, False)
    done = reverse("console:run", args=[make_run(state="succeeded").pk]) + "?tab=checkpoints"
    text = signed_in("operator").get(done).content.decode()
    assert ("Go on from here…" in text, "Fork…" in text) == (False, True)


@pytest.mark.parametrize("verb", ["retry-from", "fork"])
@pytest.mark.parametrize("name", ["viewer", "reviewer", "stranger"])
def test_nobody_else_goes_back_or_forks(signed_in, trip, verb, name):
    answer = ask(signed_in(name), trip, verb, reason="because", plan_hash="x")
    assert answer.status_code == (404 if name == "stranger" else 403)
    trip.refresh_from_db()
    assert (trip.state, Run.objects.count()) == ("failed", 1)


def test_fragment_for_htmx_and_redirect_after_a_fork(signed_in, trip):
    operator = signed_in("operator")
    address = reverse("console:branch", args=[trip.pk, 0, "fork"])
    answer = operator.get(address, headers=HTMX)
    assert answer.content.decode().lstrip().startswith("<form")
    assert answer["HX-Retarget"] == "#dialog"
    done = operator.post(address, form_of(answer), headers=HTMX)
    assert done["HX-Redirect"].startswith("/runs/")

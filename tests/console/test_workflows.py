"""The page of workflows: versions with open runs, drained or not, who can run them, and the way to the newest."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse

from durableops import State, migration, step, workflow
from runs.models import PlanSource
from tests.factories import make_plan, make_run, make_tenant, make_worker

PAGE = reverse("console:workflows")


def row(page: str, plan: Any) -> str:
    """The text of a version's row."""
    found = re.search(rf'<tr id="plan-{plan.pk}">(.*?)</tr>', page, flags=re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


@pytest.fixture
def newest(own_registry):
    own_registry.clear()

    class Nothing(State):
        n: int = 0

    made = workflow(name="made", version=3, state=Nothing, migrate="reviewed")(
        type("Made", (), {"a": step(id="a")(lambda run: None)})
    )

    @migration(made, from_version=2)
    def up(state: dict[str, Any]) -> dict[str, Any]:
        return state


def test_version_says_its_open_runs_its_workers_and_the_way_ahead(signed_in, newest):
    old, current = make_plan(version=2), make_plan(version=3)
    for state in ("queued", "in_review", "succeeded"):
        make_run(state=state, plan=old)
    make_worker(plans=[old.pk])
    page = signed_in("viewer").get(PAGE).content.decode()
    told = row(page, old)
    for words in ("v2", "2 1 in review", "in use", "v2 → v3, reviewed"):
        assert words in told
    assert "drained 0 it is the newest here" in row(page, current)


def test_version_that_nobody_can_run_any_more_says_so(signed_in, newest):
    old, older = make_plan(version=2), make_plan(version=1)
    make_run(plan=old)
    make_run(plan=older)
    make_worker(plans=[old.pk], ended="lost")
    page = signed_in("viewer").get(PAGE).content.decode()
    assert "no worker for v2" in row(page, old)
    assert "no migration to v3" in row(page, older)


def test_source_that_changed_without_a_version_is_told(signed_in, newest):
    plan = make_plan(version=3)
    for fingerprint in ("a" * 64, "b" * 64):
        PlanSource.objects.create(plan=plan, fingerprint=fingerprint)
    assert "source changed, version did not" in row(signed_in("viewer").get(PAGE).content.decode(), plan)


def test_runs_of_other_tenants_are_not_counted_but_keep_a_version_from_being_drained(signed_in, newest):
    plan = make_plan(version=2)
    make_run(plan=plan, tenant=make_tenant("other"))
    told = row(signed_in("viewer").get(PAGE).content.decode(), plan)
    assert "0 no worker for v2" in told


def test_page_without_any_version_says_what_would_be_here(signed_in):
    assert "No version was recorded yet" in signed_in("admin").get(PAGE).content.decode()

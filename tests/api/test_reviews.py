"""The review desk over the API: groups, one run with what its migration would make of it, and every way it goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from durableops import Migrated, State, migration, step, tool, workflow
from durableops.authoring import registry
from durableops.engine.plans import plan_id
from runs.models import AuditEntry, Review, Run, WorkflowPlan
from tests import factories
from tests.api.clients import Caller, read

pytestmark = [pytest.mark.engine, pytest.mark.django_db]
WHY = {"reason": "because"}


class Old(State):
    """As version 1 has it."""

    n: int = 0


class New(State):
    """As version 2 has it."""

    many: list[int] = []


@pytest.fixture
def plans(own_registry: registry.Registry) -> tuple[WorkflowPlan, WorkflowPlan]:
    """Version 1, and version 2 with a migration that renames its step and leaves a call behind."""

    @tool(safety="keyed", timeout=5)
    def book(call: Any) -> None:
        """Books a room."""

    def nothing(run: Any) -> None:
        """The step where these runs stand."""

    old = {"first": step(id="first", tools=[book])(nothing)}
    new = {"begin": step(id="begin")(nothing), "last": step(id="last")(nothing)}
    workflow(name="trip", version=1, state=Old)(type("Trip", (), old))
    newer = workflow(name="trip", version=2, state=New, migrate="reviewed")(type("Trip", (), new))

    @migration(newer, from_version=1)
    def up(old: dict[str, Any]) -> Migrated:
        return Migrated(state={"many": [old.get("n", 0)]}, steps={"first": "begin"}, effects={"first/book": None})

    with connection.cursor() as cursor:
        old_id, new_id = (plan_id(cursor, registry.workflow("trip", version)) for version in (1, 2))
    return WorkflowPlan.objects.get(pk=old_id), WorkflowPlan.objects.get(pk=new_id)


@pytest.fixture
def parked(acme, plans, clean_queue) -> Run:
    """A run in review that has booked something."""
    return park(acme, plans)


def park(tenant, plans, **over: Any) -> Run:
    run = factories.make_run(tenant=tenant, plan=plans[0], workflow="trip", state="in_review", step_id="first", **over)
    long_ago = factories.now() - timedelta(hours=1)
    factories.make_effect(run, state="succeeded", tool="book", step_id="first", intended_at=long_ago)
    factories.make_review(run, fingerprint="f" * 32, plan=plans[0], target=plans[1], workflow="trip")
    return run


def test_groups_count_their_runs_and_those_of_others_are_not_there(caller, stranger, acme, parked, plans):
    another = park(acme, plans)
    [group] = read(caller.get("/reviews"))["groups"]
    assert (group["fingerprint"], group["runs"], group["version"], group["target_version"]) == ("f" * 32, 2, 1, 2)
    found = read(caller.get(f"/reviews/{'f' * 32}?limit=1"))
    assert [row["run"] for row in found["runs"]] == [str(parked.pk)]
    following = read(caller.get(f"/reviews/{'f' * 32}?after={found['next']}"))
    assert ([row["run"] for row in following["runs"]], following["next"]) == ([str(another.pk)], None)
    assert read(stranger.get("/reviews"))["groups"] == []
    assert stranger.get(f"/reviews/{'f' * 32}").status_code == 404


def test_one_finding_shows_both_plans_and_what_the_migration_would_make_of_the_run(caller, acme, parked):
    found = read(caller.get(f"/runs/{parked.pk}/review"))
    assert [one["id"] for one in found["recorded_plan"]["steps"]] == ["first"]
    assert [one["id"] for one in found["target_plan"]["steps"]] == ["begin", "last"]
    becomes = found["becomes"]
    assert (becomes["version"], becomes["step"], becomes["functions"]) == (2, "begin", ["up"])
    assert becomes["state"]["value"] == {"many": [0]}
    assert [line["category"] for line in becomes["plan"]["calls"]] == ["anew"]
    blind = read(Caller(acme, ["runs:read"]).get(f"/runs/{parked.pk}/review"))
    assert (blind["becomes"]["state"]["value"], blind["state_before"]["value"]) == (None, None)
    assert not AuditEntry.objects.filter(target_kind="run").exists()


def test_migration_wants_the_plan_that_the_finding_showed_and_can_be_taken_back(caller, parked):
    shown = read(caller.get(f"/runs/{parked.pk}/review"))["becomes"]["plan"]["plan_hash"]
    refused = caller.post(f"/runs/{parked.pk}/migrate", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    assert caller.post(f"/runs/{parked.pk}/migrate", WHY | {"plan_hash": shown}).status_code == 200
    assert caller.get(f"/runs/{parked.pk}/review").status_code == 404
    assert caller.post(f"/runs/{parked.pk}/revert", WHY).status_code == 200
    parked.refresh_from_db()
    assert (parked.plan.version, parked.step_id) == (1, "first")


@pytest.mark.parametrize("how", ["edit", "move"])
def test_edit_and_move_are_previewed_and_do_what_was_shown_or_nothing(caller, parked, how):
    body: dict[str, Any] = {"step": "last"} if how == "move" else {"step": "last", "state": {"many": [7]}}
    shown = read(caller.post(f"/runs/{parked.pk}/edit/preview", body))
    assert (shown["step"], shown["plan"]["verb"]) == ("last", how)
    address = f"/runs/{parked.pk}/{how}"
    unseen = caller.post(address, WHY | body)
    assert (unseen.status_code, read(unseen)["code"]) == (409, "run.plan_wanted")
    if how == "edit":
        other = caller.post(address, WHY | body | {"state": {"many": [8]}, "plan_hash": shown["plan"]["plan_hash"]})
        assert (other.status_code, read(other)["code"]) == (409, "run.plan_changed")
    assert Review.objects.get(run=parked).closed_at is None
    assert caller.post(address, WHY | body | {"plan_hash": shown["plan"]["plan_hash"]}).status_code == 200
    parked.refresh_from_db()
    assert (parked.step_id, parked.plan.version, parked.state) == ("last", 2, "queued")


def test_state_is_edited_with_payload_sight_alone(acme, parked):
    blind = Caller(acme, ["reviews:decide"])
    for path in ("edit", "edit/preview"):
        body: dict[str, Any] = {"state": {"many": []}} | (WHY if path == "edit" else {})
        refused = blind.post(f"/runs/{parked.pk}/{path}", body)
        assert (refused.status_code, read(refused)["needs"]) == (403, "payloads:read")


def test_pin_wants_the_plan_where_a_call_would_go_out_again(caller, parked):
    factories.make_effect(parked, state="intended", tool="book", step_id="first")
    refused = caller.post(f"/runs/{parked.pk}/pin", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    shown = read(caller.get(f"/runs/{parked.pk}/plans/pin"))["plan_hash"]
    assert caller.post(f"/runs/{parked.pk}/pin", WHY | {"plan_hash": shown}).status_code == 200
    assert caller.post(f"/runs/{parked.pk}/unpin", WHY).status_code == 200


def test_second_reviewer_decides_and_the_first_is_refused(caller, acme, parked):
    assert caller.post(f"/runs/{parked.pk}/ask-second", WHY).status_code == 200
    assert caller.post(f"/runs/{parked.pk}/reject", WHY | {"done": "keep"}).status_code == 409
    other = Caller(acme, ["reviews:decide"], name="other")
    assert other.post(f"/runs/{parked.pk}/reject", WHY | {"done": "keep"}).status_code == 200
    parked.refresh_from_db()
    assert (parked.state, Review.objects.get(run=parked).closed_as) == ("cancelled", "rejected")


def test_whole_group_is_migrated_as_a_bulk_action(caller, acme, parked, plans):
    park(acme, plans)
    arguments = {"workflow": "trip", "version": 2, "finding": "f" * 32}
    made = caller.post("/bulks", {"verb": "migrate", "filter": {"finding": "f" * 32}, "arguments": arguments})
    assert (made.status_code, read(made)["runs"]) == (201, 2)
    mixed = {"verb": "migrate", "filter": {"finding": "f" * 32, "workflow": "trip"}, "arguments": arguments}
    assert caller.post("/bulks", mixed).status_code == 400

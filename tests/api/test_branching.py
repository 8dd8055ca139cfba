"""Going back, forking and undoing over the API: where a run may go back to, and only what was looked at."""

from __future__ import annotations

import json

import pytest

from durableops import tool
from durableops.engine.compensation import undoing
from runs.models import AuditEntry, Checkpoint, Run
from runs.states import State
from tests.api.clients import Caller, read
from tests.factories import make_checkpoint, make_effect, make_run

WHY = {"reason": "again"}


def test_checkpoints_are_listed_in_pages_and_show_their_state_to_those_who_see_payloads(caller, acme):
    run = make_run(tenant=acme, state_json='{"n": 1}')
    make_checkpoint(run, seq=1)
    first = read(caller.get(f"/runs/{run.pk}/checkpoints?limit=1"))
    assert ([one["seq"] for one in first["checkpoints"]], first["next"]) == ([0], 0)
    second = read(caller.get(f"/runs/{run.pk}/checkpoints?limit=1&after=0"))
    assert ([one["seq"] for one in second["checkpoints"]], second["next"]) == ([1], None)
    shown = read(caller.get(f"/runs/{run.pk}/checkpoints/1"))["state"]
    assert (shown["checkpoint"], shown["value"]) == (0, {"n": 1}), "the state stands where it was written last"
    hidden = read(Caller(acme, ["runs:read"]).get(f"/runs/{run.pk}/checkpoints/1"))["state"]
    assert (hidden["shown"], hidden["value"]) == (False, None)
    assert caller.get(f"/runs/{run.pk}/checkpoints/7").status_code == 404


def test_run_goes_back_only_with_the_plan_that_was_looked_at(caller, acme):
    run = make_run(state=State.FAILED, tenant=acme)
    make_effect(run, state="intended", safety="keyed", tool="book")
    body = WHY | {"checkpoint": 0}
    refused = caller.post(f"/runs/{run.pk}/retry-from", body)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    shown = read(caller.get(f"/runs/{run.pk}/plans/retry_from?checkpoint=0"))
    assert read(refused)["plan"] == shown
    answer = caller.post(f"/runs/{run.pk}/retry-from", body | {"plan_hash": shown["plan_hash"]})
    assert (answer.status_code, read(answer)["state"]) == (200, "queued")
    run.refresh_from_db()
    assert (run.lineage, AuditEntry.objects.filter(verb="retry_from").count()) == (2, 1)


def test_fork_with_an_edited_state_is_made_once_for_one_key(caller):
    run = read(caller.start({"customer": "ann"}))["id"]
    body = WHY | {"checkpoint": 0, "state": {"customer": "bob", "amount": 3, "notes": []}}
    made = caller.post(f"/runs/{run}/fork", body, key="k")
    assert made.status_code == 201
    fork = read(made)["run"]
    assert made["Location"] == f"/api/v1/runs/{fork}"
    again = caller.post(f"/runs/{run}/fork", body, key="k")
    assert (again.status_code, read(again)["run"], again["Idempotent-Replayed"]) == (200, fork, "true")
    assert json.loads(Checkpoint.objects.get(run=fork, seq=0).state or "")["customer"] == "bob"
    assert read(caller.post(f"/runs/{run}/fork", body))["run"] not in (fork, run), "without a key it is another one"


def test_fork_that_would_call_anew_wants_its_plan(caller):
    run = Run.objects.get(pk=read(caller.start())["id"])
    make_effect(run, state="succeeded", safety="legacy", tool="post")
    refused = caller.post(f"/runs/{run.pk}/fork", WHY | {"checkpoint": 0})
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    assert [line["category"] for line in read(refused)["plan"]["calls"]] == ["anew"]
    given = WHY | {"checkpoint": 0, "plan_hash": read(refused)["plan"]["plan_hash"]}
    assert caller.post(f"/runs/{run.pk}/fork", given).status_code == 201


@pytest.mark.parametrize(
    ("state", "status", "path"),
    [({"customer": 7}, 400, "/customer"), ({"amount": 1}, 400, "/customer"), ([], 400, "/state")],
)
def test_edited_state_outside_the_schema_is_refused_and_starts_nothing(caller, state, status, path):
    run = read(caller.start())["id"]
    refused = caller.post(f"/runs/{run}/fork", WHY | {"checkpoint": 0, "state": state})
    assert refused.status_code == status
    assert read(refused)["path"].endswith(path)
    assert Run.objects.count() == 1


def test_state_is_edited_only_by_those_who_see_it(caller, acme):
    run = read(caller.start())["id"]
    body = WHY | {"checkpoint": 0, "state": {"customer": "bob"}}
    refused = Caller(acme, ["runs:operate"]).post(f"/runs/{run}/fork", body)
    assert (refused.status_code, read(refused)["needs"]) == (403, "payloads:read")


def test_finished_run_is_undone_with_the_plan_that_was_looked_at(caller, acme):
    undoing.install()

    @tool(safety="keyed", name="book", instructions="Call the hotel.")
    def book(call):
        return None

    run = make_run(state=State.CANCELLED, tenant=acme)
    make_effect(run, state="succeeded", tool="book", resource="hotel")
    refused = caller.post(f"/runs/{run.pk}/compensate", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    assert [(line["category"], line["tool"]) for line in read(refused)["plan"]["calls"]] == [("task", "book")]
    given = WHY | {"plan_hash": read(refused)["plan"]["plan_hash"]}
    assert caller.post(f"/runs/{run.pk}/compensate", given).status_code == 200
    [one] = read(caller.get(f"/compensations?run={run.pk}"))["compensations"]
    assert (one["state"], one["tool"], one["instructions"]) == ("approved", "book", "Call the hotel.")
    assert Run.objects.get(pk=one["linked_run"]).state == "queued"

"""Bulk actions over the API: captured, looked at, started once, held, and what came of each run."""

from __future__ import annotations

from uuid import uuid4

import pytest

from durableops.engine.bulk import capture, executing
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from runs.models import Bulk, Run
from runs.states import State
from tests.api.clients import Caller, read
from tests.factories import make_effect, make_run

WHY = {"reason": "their side is up again"}


def preview(caller, **body) -> dict:
    answer = caller.post("/bulks", {"verb": "pause"} | body)
    assert answer.status_code == 201, answer.content
    return read(answer)


def test_named_runs_are_captured_shown_and_done_each_once(caller, stranger, acme):
    runs = [make_run(tenant=acme) for _ in range(3)] + [make_run(tenant=acme, state=State.FAILED)]
    theirs = make_run(tenant=stranger.tenant)
    made = preview(caller, runs=[str(run.pk) for run in (*runs, theirs)])
    assert (made["runs"], made["state"], made["selection"]) == (4, "preview", "5 named")
    assert sorted((one["state"], one["fits"], one["runs"]) for one in made["meets"]) == [
        ("failed", False, 1), ("queued", True, 3),
    ]  # fmt: skip
    assert not Run.objects.filter(paused=True).exists()
    assert read(caller.post(f"/bulks/{made['id']}/start", WHY))["state"] == "running"
    executing.execute_batch()
    shown = read(caller.get(f"/bulks/{made['id']}"))
    assert (shown["state"], shown["outcomes"]) == ("done", {"pending": 0, "done": 3, "refused": 1, "failed": 0})
    first = read(caller.get(f"/bulks/{made['id']}/results?limit=3"))
    rest = read(caller.get(f"/bulks/{made['id']}/results?limit=3&after={first['next']}"))
    assert [len(first["results"]), len(rest["results"]), rest["next"]] == [3, 1, None]
    [refused] = read(caller.get(f"/bulks/{made['id']}/results?state=refused"))["results"]
    assert refused["run"] == str(runs[3].pk)
    theirs.refresh_from_db()
    assert not theirs.paused


def test_runs_are_chosen_by_what_they_are(caller, acme):
    wanted = [make_run(tenant=acme, workflow="order", labels={"of": "north"}) for _ in range(2)]
    make_run(tenant=acme, workflow="order", labels={"of": "south"})
    make_run(tenant=acme, workflow="order", state=State.FAILED, labels={"of": "north"})
    chosen = {"state": ["queued", "waiting"], "workflow": "order", "labels": {"of": "north"}}
    made = preview(caller, filter=chosen)
    found = read(caller.get(f"/bulks/{made['id']}/results"))["results"]
    assert {one["run"] for one in found} == {str(run.pk) for run in wanted}
    assert made["selection"] == "state:queued state:waiting workflow:order label:of=north"


def test_bulk_retry_that_would_send_again_wants_its_plan(caller, acme):
    run = make_run(state=State.FAILED, tenant=acme)
    effect = make_effect(run, state="intended", safety="keyed", tool="book")
    made = preview(caller, verb="retry", filter={})
    assert [line["category"] for line in made["plan"]["calls"]] == ["again"]
    refused = caller.post(f"/bulks/{made['id']}/start", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "bulk.plan_changed")
    assert read(refused)["plan"]["plan_hash"] == made["plan_hash"]
    make_effect(run, state="in_doubt", safety="legacy", tool="post")
    changed = caller.post(f"/bulks/{made['id']}/start", WHY | {"plan_hash": made["plan_hash"]})
    assert changed.status_code == 409
    fresh = read(changed)["plan"]
    assert sorted(line["category"] for line in fresh["calls"]) == ["again", "doubt"]
    started = caller.post(f"/bulks/{made['id']}/start", WHY | {"plan_hash": fresh["plan_hash"]})
    assert started.status_code == 200, effect


def test_action_is_held_goes_on_and_is_aborted(caller, acme):
    made = preview(caller, runs=[str(make_run(tenant=acme).pk)])
    states = [
        read(caller.post(f"/bulks/{made['id']}/{what}", WHY))["state"] for what in ("start", "pause", "resume", "abort")
    ]
    assert states == ["running", "paused", "running", "aborted"]
    again = caller.post(f"/bulks/{made['id']}/start", WHY)
    assert (again.status_code, read(again)["code"]) == (409, "bulk.refused")
    executing.execute_batch()
    assert not Run.objects.filter(paused=True).exists()


def test_bulk_actions_are_listed_newest_first(caller, acme):
    made = [preview(caller, runs=[str(make_run(tenant=acme).pk)])["id"] for _ in range(3)]
    first = read(caller.get("/bulks?limit=2"))
    assert [one["id"] for one in first["bulks"]] == made[:0:-1]
    assert [one["id"] for one in read(caller.get(f"/bulks?before={first['next']}"))["bulks"]] == made[:1]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "/runs"),
        ({"runs": [str(uuid4())], "filter": {}}, "/runs"),
        ({"runs": ["x"]}, "/runs/0"),
        ({"filter": {"state": ["odd"]}}, "/filter/state/0"),
        ({"filter": {"stat": []}}, "/filter/stat"),
        ({"verb": "settle", "filter": {}}, "/verb"),
        ({"verb": "migrate", "filter": {}}, "/arguments"),
        ({"verb": "migrate", "filter": {}, "arguments": {"workflow": "order", "version": 9}}, "/arguments"),
        ({"verb": "cancel", "filter": {}, "arguments": {"done": "perhaps"}}, "/arguments"),
    ],
)
def test_what_cannot_be_chosen_is_refused_with_its_place(caller, acme, body, path):
    make_run(tenant=acme)
    refused = caller.post("/bulks", {"verb": "pause"} | body)
    assert (refused.status_code, read(refused)["path"]) == (400, path)
    assert not Bulk.objects.exists()


def test_selection_without_runs_of_this_tenant_is_refused(caller, stranger):
    theirs = make_run(tenant=stranger.tenant)
    assert caller.post("/bulks", {"verb": "pause", "runs": [str(theirs.pk)]}).status_code == 400


def test_migration_of_many_is_not_begun_or_steered_by_a_token_without_that_right(acme, order):
    caller = Caller(acme, ["runs:read", "runs:operate"])
    run, arguments = make_run(tenant=acme), {"workflow": "order", "version": 2}
    bulk = capture.preview(
        verb("migrate"), Selection(words="one", ids=[run.pk]), tenant=acme, actor="rita", arguments=arguments
    )
    asked = {"verb": "migrate", "runs": [str(run.pk)], "arguments": arguments}
    for refused in (caller.post(f"/bulks/{bulk.pk}/start", WHY), caller.post("/bulks", asked)):
        assert (refused.status_code, read(refused)["needs"]) == (403, "reviews:decide")
    plan = read(caller.get(f"/bulks/{bulk.pk}"))["plan"]
    assert plan["cannot"] == {"it is a run of 'made', not of 'order'.": 1}


def test_bulk_actions_of_another_tenant_are_not_found(caller, stranger, acme):  # C143
    made = preview(caller, runs=[str(make_run(tenant=acme).pk)])
    assert stranger.get(f"/bulks/{made['id']}").status_code == 404
    assert stranger.get(f"/bulks/{made['id']}/results").status_code == 404
    assert stranger.post(f"/bulks/{made['id']}/start", WHY).status_code == 404
    assert read(stranger.get("/bulks"))["bulks"] == []


def test_reading_is_enough_to_see_and_not_to_begin(acme, order):
    reader = Caller(acme, ["runs:read"])
    assert reader.get("/bulks").status_code == 200
    assert reader.post("/bulks", {"verb": "pause", "filter": {}}).status_code == 403

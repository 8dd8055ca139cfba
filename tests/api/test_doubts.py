"""Doubts and legacy systems over the API: read, claimed, settled once, and nothing of other tenants."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs.models import AuditEntry, Doubt, IdempotencyRecord, Run, System
from tests.api.clients import Caller, read
from tests.factories import make_doubt, make_effect, make_run, now

WHY = {"reason": "asked them"}


@pytest.fixture
def doubt(acme) -> Doubt:
    """A call in doubt that holds its system's queue."""
    System.objects.create(name="ledger")
    effect = make_effect(
        make_run(state="in_doubt", tenant=acme), state="in_doubt", safety="legacy", tool="post", system="ledger",
        resource="order 7", holds_system=True, request_summary={"amount": 40},
        response_summary={"status": 502, "text": "bad gateway"}, quiet_after=now() + timedelta(minutes=5),
    )  # fmt: skip
    return make_doubt(effect, why="no answer within 30 s")


def test_open_doubts_are_listed_and_settled_ones_apart(caller, doubt):
    [shown] = read(caller.get("/doubts"))["doubts"]
    assert (shown["id"], shown["tool"], shown["holds_system"]) == (doubt.pk, "post", "ledger")
    assert shown["error"] == {"kind": "call_timeout", "message": "no answer within 30 s", "fingerprint": ""}
    assert shown["request"] == {"amount": 40}
    assert shown["response"]["status"] == 502
    assert read(caller.get("/doubts?state=settled"))["doubts"] == []


def test_requests_and_responses_are_for_those_who_see_payloads(acme, doubt):
    [shown] = read(Caller(acme, ["runs:read"]).get("/doubts"))["doubts"]
    assert (shown["request"], shown["response"]) == (None, None)


def test_pages_of_doubts_follow_each_other(caller, acme):
    made = [make_doubt(make_effect(make_run(tenant=acme), state="in_doubt")).pk for _ in range(5)]
    seen, after = [], 0
    while after is not None:
        page = read(caller.get(f"/doubts?limit=2&after={after}"))
        seen += [one["id"] for one in page["doubts"]]
        after = page["next"]
    assert seen == made
    assert caller.get("/doubts?limt=2").status_code == 400


def test_doubt_says_what_each_answer_would_do_and_why_one_is_not_offered(caller, doubt):
    shown = read(caller.get(f"/doubts/{doubt.pk}"))
    offered = {choice["how"]: choice for choice in shown["choices"]}
    assert list(offered) == ["happened", "did_not", "compensate", "give_up", "release"]
    assert not offered["did_not"]["offered"]
    assert "may send it or wait for its answer" in offered["did_not"]["why_not"]
    assert any("queue of ledger" in line for line in offered["happened"]["means"])


def test_settled_over_the_api_once(caller, doubt):
    shown = read(caller.get(f"/doubts/{doubt.pk}"))
    body = WHY | {"how": "happened", "downstream_id": "L-7", "result": {"id": "L-7"}, "plan_hash": shown["plan_hash"]}
    answer = caller.post(f"/doubts/{doubt.pk}/settle", body)
    assert (answer.status_code, read(answer)["state"]) == (200, "queued")
    effect = IdempotencyRecord.objects.get()
    assert (effect.state, effect.result, effect.downstream_id) == ("succeeded", '{"id":"L-7"}', "L-7")
    again = caller.post(f"/doubts/{doubt.pk}/settle", WHY | {"how": "give_up"})
    assert again.status_code == 409
    assert "was settled as happened by token" in read(again)["detail"]
    assert read(caller.get("/doubts?state=settled"))["doubts"][0]["settled_as"] == "happened"


def test_settlement_that_was_decided_on_other_facts_is_refused_and_shows_the_new_ones(caller, doubt):
    shown = read(caller.get(f"/doubts/{doubt.pk}"))
    Run.objects.update(state="cancelled", finished_at=now())
    answer = caller.post(f"/doubts/{doubt.pk}/settle", WHY | {"how": "give_up", "plan_hash": shown["plan_hash"]})
    assert (answer.status_code, read(answer)["code"]) == (409, "run.plan_changed")
    assert Doubt.objects.get().settled_at is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"how": "perhaps"}, 400),
        ({"how": "happened", "reason": ""}, 400),
        ({"how": "happened", "downstream_id": "x" * 300}, 400),
        ({"how": "happened", "more": 1}, 400),
        ({"how": "did_not"}, 409),
        ({"how": "did_not", "result": 1}, 400),
    ],
)
def test_what_cannot_be_said_is_refused_and_changes_nothing(caller, doubt, body, status):
    assert caller.post(f"/doubts/{doubt.pk}/settle", WHY | body).status_code == status
    assert IdempotencyRecord.objects.get().state == "in_doubt"


def test_release_claim_and_unclaim(caller, doubt):
    assert caller.post(f"/doubts/{doubt.pk}/claim", {}).status_code == 200
    assert read(caller.get(f"/doubts/{doubt.pk}"))["claimed_by"].startswith("token")
    assert caller.post(f"/doubts/{doubt.pk}/claim", {}).status_code == 409
    assert caller.post(f"/doubts/{doubt.pk}/unclaim", {}).status_code == 200
    assert caller.post(f"/doubts/{doubt.pk}/release", WHY).status_code == 200
    assert IdempotencyRecord.objects.get().holds_system is False
    assert AuditEntry.objects.filter(actor__startswith="token").count() == 4


@pytest.mark.parametrize("path", ["/doubts/1", "/doubts/99999999999999999999", "/systems/nothing"])
def test_what_is_not_there_is_not_found(caller, path):
    assert caller.get(path).status_code == 404


def test_systems_show_their_queue_and_count_what_is_of_others(caller, stranger, acme, doubt):
    legacy = {"safety": "legacy", "tool": "post", "system": "ledger", "state": "queued"}
    theirs = make_effect(make_run(tenant=stranger.tenant), **legacy)
    mine = [make_effect(make_run(tenant=acme), **legacy) for _ in range(2)]
    [system] = read(caller.get("/systems"))["systems"]
    assert (system["queued"], system["queued_here"], system["in_doubt"], system["on_the_wire"]) == (3, 2, 1, False)
    shown = read(caller.get("/systems/ledger"))
    assert [(call["effect"], call["ahead"]) for call in shown["calls"]] == [(mine[0].pk, 1), (mine[1].pk, 2)]
    assert theirs.resource not in str(shown["calls"])
    assert read(stranger.get("/systems"))["systems"][0]["queued_here"] == 1


def test_queued_call_is_moved_among_its_tenants_own(caller, stranger, acme, doubt):
    legacy = {"safety": "legacy", "tool": "post", "system": "ledger", "state": "queued"}
    first = make_effect(make_run(tenant=acme), **legacy)
    theirs = make_effect(make_run(tenant=stranger.tenant), **legacy)
    last = make_effect(make_run(tenant=acme), **legacy)
    places = [first.queue_order, theirs.queue_order, last.queue_order]
    assert caller.post(f"/systems/calls/{last.pk}/move", WHY | {"to": "first"}).status_code == 200
    order = [IdempotencyRecord.objects.get(pk=effect.pk).queue_order for effect in (last, theirs, first)]
    assert order == places
    assert stranger.post(f"/systems/calls/{last.pk}/move", WHY | {"to": "last"}).status_code == 404
    IdempotencyRecord.objects.filter(pk=last.pk).update(state="withdrawn", completed_at=now())
    assert caller.post(f"/systems/calls/{last.pk}/move", WHY | {"to": "last"}).status_code == 409

"""What a verb would send again over the API: shown beforehand, demanded where it matters, refused once it changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs.models import AuditEntry, IdempotencyRecord, Run
from runs.states import State
from tests.api.clients import Caller, read
from tests.factories import make_doubt, make_effect, make_run, now

WHY = {"reason": "again"}


def failed(acme, *, effect: str = "intended", safety: str = "keyed") -> Run:
    """A failed run whose step has made one call."""
    run = make_run(state=State.FAILED, tenant=acme, step_id="take")
    make_effect(run, state=effect, safety=safety, tool="book", resource="hotel", step_id="take")
    return run


def plan(caller: Caller, run: Run, verb: str = "retry", query: str = "") -> dict:
    return read(caller.get(f"/runs/{run.pk}/plans/{verb}{query}"))


def test_plan_tells_the_calls_by_class_and_changes_nothing(caller, acme):
    run = failed(acme)
    found = plan(caller, run)
    assert (found["verb"], found["harmless"], len(found["plan_hash"])) == ("retry", False, 64)
    assert found["calls"] == [
        {"category": "again", "tool": "book", "safety": "keyed", "calls": 1, "runs": 1, "samples": ["hotel"]}
    ]
    assert not AuditEntry.objects.filter(target_kind="run").exists()


def test_retry_that_would_send_again_is_refused_with_its_plan_until_that_is_given(caller, acme):
    run = failed(acme)
    refused = caller.post(f"/runs/{run.pk}/retry", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    assert read(refused)["plan"] == plan(caller, run)
    run.refresh_from_db()
    assert run.state == "failed"
    given = WHY | {"plan_hash": read(refused)["plan"]["plan_hash"]}
    assert caller.post(f"/runs/{run.pk}/retry", given).status_code == 200


def test_retry_that_sends_nothing_again_wants_no_plan(caller, acme):
    run = failed(acme, effect="succeeded")
    assert plan(caller, run)["harmless"] is True
    assert caller.post(f"/runs/{run.pk}/retry", WHY).status_code == 200


def test_retry_whose_facts_changed_since_the_plan_is_refused_and_shown_anew(caller, acme):
    run = failed(acme)
    shown = plan(caller, run)["plan_hash"]
    IdempotencyRecord.objects.update(window_ends_at=now() - timedelta(hours=1))
    refused = caller.post(f"/runs/{run.pk}/retry", WHY | {"plan_hash": shown})
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_changed")
    fresh = read(refused)["plan"]
    assert [line["category"] for line in fresh["calls"]] == ["doubt"]
    assert caller.post(f"/runs/{run.pk}/retry", WHY | {"plan_hash": fresh["plan_hash"]}).status_code == 200


def test_did_not_happen_wants_the_plan_that_the_doubt_shows(caller, acme):
    effect = make_effect(make_run(state="in_doubt", tenant=acme), state="in_doubt", safety="keyed", tool="book")
    doubt = make_doubt(effect)
    shown = read(caller.get(f"/doubts/{doubt.pk}"))
    fates = {choice["how"]: (choice["calls"][0]["category"], choice["harmless"]) for choice in shown["choices"]}
    assert fates == {
        "happened": ("reused", True), "did_not": ("again", False), "compensate": ("task", True),
        "give_up": ("given_up", True),
    }  # fmt: skip
    IdempotencyRecord.objects.update(quiet_after=now() - timedelta(hours=1))
    refused = caller.post(f"/doubts/{doubt.pk}/settle", WHY | {"how": "did_not"})
    assert (refused.status_code, read(refused)["code"]) == (409, "run.plan_wanted")
    assert read(refused)["plan"]["plan_hash"] == shown["plan_hash"]
    given = WHY | {"how": "did_not", "plan_hash": shown["plan_hash"]}
    assert caller.post(f"/doubts/{doubt.pk}/settle", given).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "place"),
    [
        ("retry?checkpoint=0", 400, "checkpoint"),
        ("retry?version=2", 400, "version"),
        ("fork", 400, "checkpoint"),
        ("retry_from?checkpoint=7", 400, "checkpoint"),
        ("retry_from?check=0", 400, "check"),
        ("pause", 400, None),
        ("migrate?version=99", 404, None),
    ],
)
def test_plan_of_what_cannot_be_is_refused(caller, acme, path, status, place):
    answer = caller.get(f"/runs/{failed(acme).pk}/plans/{path}")
    assert answer.status_code == status
    assert place is None or read(answer)["path"] == place


def test_plan_of_another_tenants_run_is_not_found(stranger, acme):  # C143
    assert stranger.get(f"/runs/{failed(acme).pk}/plans/retry").status_code == 404

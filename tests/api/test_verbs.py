from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runs.models import AuditEntry, Run
from runs.states import State
from tests import factories
from tests.api.clients import read


def audit() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.filter(target_kind="run").order_by("id").values_list("verb", "actor", "reason"))


def test_cancel_ends_a_queued_run_and_the_audit_names_the_token(caller, acme):
    run = factories.make_run(tenant=acme)
    response = caller.post(f"/runs/{run.pk}/cancel", {"reason": "not wanted"})
    assert response.status_code == 200
    assert read(response) == {"run": str(run.pk), "state": "cancelled", "settled": True, "detail": "cancelled."}
    assert audit() == [("cancel", f"token {caller.issued.token.name} ({caller.issued.token.prefix})", "not wanted")]


def test_cancel_of_a_running_run_is_accepted_while_its_worker_still_has_to_stop(caller, acme):
    run = factories.make_run(state=State.RUNNING, tenant=acme)
    response = caller.post(f"/runs/{run.pk}/cancel", {"reason": "not wanted"})
    assert response.status_code == 202
    assert read(response)["settled"] is False
    assert read(caller.get(f"/runs/{run.pk}"))["why"]["code"] == "running.cancelling"


def test_cancelling_twice_says_that_it_is_cancelled_and_changes_nothing_more(caller, acme):
    run = factories.make_run(tenant=acme)
    caller.post(f"/runs/{run.pk}/cancel", {"reason": "not wanted"})
    response = caller.post(f"/runs/{run.pk}/cancel", {"reason": "really"})
    assert response.status_code == 409
    found = read(response)
    assert (found["code"], found["state"]) == ("run.transition_refused", "cancelled")
    assert [verb for verb, _actor, _reason in audit()] == ["cancel", "cancel (refused)"]


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "retry"])
@pytest.mark.parametrize("state", list(State))
def test_every_verb_in_every_state_is_done_or_refused_with_the_state(caller, acme, verb, state):
    run = factories.make_run(state=state, tenant=acme)
    response = caller.post(f"/runs/{run.pk}/{verb}", {"reason": "because"})
    assert response.status_code in (200, 202, 409)
    run.refresh_from_db()
    if response.status_code == 409:
        assert (read(response)["state"], run.state) == (state, state)
        assert [verb for verb, _actor, _reason in audit()] == [f"{verb} (refused)"]
    else:
        assert read(response)["state"] == run.state
        assert len(audit()) == 1


def test_pause_and_resume(caller, acme):
    run = factories.make_run(tenant=acme)
    assert caller.post(f"/runs/{run.pk}/pause", {"reason": "look"}).status_code == 200
    assert read(caller.get(f"/runs/{run.pk}"))["paused"] is True
    assert caller.post(f"/runs/{run.pk}/resume", {"reason": "looked"}).status_code == 200
    assert [verb for verb, _actor, _reason in audit()] == ["pause", "resume"]


def test_retry_of_a_run_past_its_deadline_wants_a_new_one(caller, acme):
    run = factories.make_run(state=State.TIMED_OUT, tenant=acme, deadline_at=datetime.now(UTC) - timedelta(hours=1))
    path = f"/runs/{run.pk}/retry"
    assert caller.post(path, {"reason": "again"}).status_code == 409
    later = datetime.now(UTC) + timedelta(hours=1)
    assert caller.post(path, {"reason": "again", "deadline_at": later.isoformat()}).status_code == 200
    assert Run.objects.get().deadline_at == later


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "/reason"),
        ({"reason": ""}, "/reason"),
        ({"reason": "x" * 2001}, "/reason"),
        ({"reason": None}, "/reason"),
        ({"reason": "x", "force": True}, "/force"),
        ({"reason": "x", "deadline_at": "9999-12-31T23:59:59-14:00"}, "/deadline_at"),
    ],
)
def test_verb_without_a_fitting_body_is_refused(caller, acme, body, path):
    run = factories.make_run(state=State.FAILED, tenant=acme)
    response = caller.post(f"/runs/{run.pk}/retry", body)
    assert (response.status_code, read(response)["path"]) == (400, path)
    run.refresh_from_db()
    assert run.state == State.FAILED

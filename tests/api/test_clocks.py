"""Clocks over the API: what fired, by cause; more time for a run and for a wait, with a reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.limits.clocks import Clock, Firing, Phase
from runs.models import AuditEntry, RunEvent
from tests import factories
from tests.api.clients import read

LATER = factories.now() + timedelta(days=1)


def test_clocks_are_told_by_cause_and_by_whom_they_waited_for(caller, stranger, acme):
    run = factories.make_run(tenant=acme)
    firing = Firing(clock=Clock.CALL_TIMEOUT, limit_seconds=1, trigger="late", elapsed_seconds=2, phase=Phase.CALLING,
                    next_state="queued", whom="tool crm")  # fmt: skip
    for at in (factories.now(), factories.now() - timedelta(hours=3)):
        RunEvent.objects.create(run=run, event="call_timeout", data=firing.as_data(), at=at)
    [found] = read(caller.get("/clocks"))["clocks"]
    assert (found["cause"], found["clock"], found["whom"], found["times"], found["runs"]) == (
        "slow_dependency", "call_timeout", "tool crm", 2, 1,
    )  # fmt: skip
    assert read(caller.get("/clocks?hours=2"))["clocks"][0]["times"] == 1
    assert read(stranger.get("/clocks"))["clocks"] == []
    assert caller.get("/clocks?hours=0").status_code == 400


def test_deadline_is_moved_with_a_reason_and_the_audit_says_from_where(caller, stranger, acme):
    run = factories.make_run(tenant=acme, deadline_at=factories.now())
    body = {"reason": "the bank is late", "deadline_at": LATER.isoformat()}
    assert stranger.post(f"/runs/{run.pk}/extend", body).status_code == 404
    assert caller.post(f"/runs/{run.pk}/extend", body).status_code == 200
    before, run.deadline_at = run.deadline_at, None
    run.refresh_from_db()
    assert run.deadline_at == LATER
    entry = AuditEntry.objects.get(verb="extend_deadline", tenant=acme)
    assert (entry.reason, entry.before) == ("the bank is late", {"deadline_at": str(before)})


@pytest.mark.parametrize("of", ["its", "another"])
def test_end_of_a_wait_is_moved_where_it_belongs_to_the_run(caller, acme, of):
    run = factories.make_run(tenant=acme, state="waiting")
    wait = factories.make_wait(run, expires_at=factories.now() + timedelta(hours=1))
    named = run if of == "its" else factories.make_run(tenant=acme, state="waiting")
    body = {"reason": "more", "expires_at": LATER.isoformat()}
    response = caller.post(f"/runs/{named.pk}/waits/{wait.pk}/extend", body)
    wait.refresh_from_db()
    assert (response.status_code, wait.expires_at == LATER) == ((200, True) if of == "its" else (404, False))

"""The operators' verbs: legal where the table says so, refused with a sentence elsewhere, each with its audit entry."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops.engine import commands
from durableops.errors import InputRefused, RunNotFound, TransitionRefused
from runs.models import AuditEntry, PauseSwitch, Run, RunEvent
from runs.states import OPEN, REOPENABLE, State
from tests.factories import events_of, make_run, make_tenant, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

WHY: dict[str, Any] = {"actor": "ann", "reason": "because"}
LEGAL = {
    "pause": OPEN,
    "cancel": OPEN,
    "retry": REOPENABLE,
    "recheck": {State.IN_REVIEW},
    "resume": frozenset(),
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", LEGAL)
def test_verb_is_legal_or_changes_nothing_and_is_audited_either_way(tenant, clean_queue, verb, state):
    run = make_run(state=state)
    before = Run.objects.filter(pk=run.pk).values().get()
    if state in LEGAL[verb]:
        done = getattr(commands, verb)(run.pk, tenant=tenant, **WHY)
        run.refresh_from_db()
        assert done.state == run.state
        entry = AuditEntry.objects.get()
        assert (entry.verb, entry.actor, entry.reason, entry.target_id) == (verb, "ann", "because", str(run.pk))
        assert events_of(run)
        return
    with pytest.raises(TransitionRefused) as refused:
        getattr(commands, verb)(run.pk, tenant=tenant, **WHY)
    assert state in str(refused.value)
    assert "Nothing was changed" in str(refused.value)
    assert Run.objects.filter(pk=run.pk).values().get() == before
    assert not RunEvent.objects.exists()
    # C013: what was asked for and refused is on record too.
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.before) == (f"{verb} (refused)", "ann", {"state": state.value})


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "retry", "recheck"])
def test_run_of_another_tenant_is_not_found(tenant, verb):  # C143
    run = make_run(tenant=make_tenant("other"))
    with pytest.raises(RunNotFound, match="there is no run"):
        getattr(commands, verb)(run.pk, tenant=tenant, **WHY)
    assert not AuditEntry.objects.exists()


def test_approval_of_another_tenant_is_not_found(tenant):  # C143
    wait = make_wait(make_run(tenant=make_tenant("other"), state="waiting"), kind="approval")
    with pytest.raises(RunNotFound):
        commands.approve(wait.pk, tenant=tenant, actor="ann")


def test_pause_and_resume_keep_the_state_and_say_who(tenant, clean_queue):
    run = make_run(state="waiting")
    commands.pause(run.pk, tenant=tenant, **WHY)
    run.refresh_from_db()
    assert (run.state, run.paused, run.paused_by) == ("waiting", True, "ann")
    with pytest.raises(TransitionRefused, match="ann paused it already"):
        commands.pause(run.pk, tenant=tenant, actor="bob", reason="too")
    commands.resume(run.pk, tenant=tenant, actor="bob", reason="fine")
    run.refresh_from_db()
    assert (run.paused, run.paused_by) == (False, "")


def test_cancelled_run_that_is_parked_ends_at_once_with_its_waits(tenant, clean_queue):
    run = make_run(state="waiting")
    wait = make_wait(run)
    done = commands.cancel(run.pk, tenant=tenant, **WHY)
    wait.refresh_from_db()
    assert (done.settled, done.state, wait.state) == (True, "cancelled", "cancelled")


def test_running_run_is_asked_to_stop(tenant, clean_queue):
    run = make_run(state="running")
    done = commands.cancel(run.pk, tenant=tenant, **WHY)
    run.refresh_from_db()
    assert (done.settled, run.state, run.cancel_requested) == (False, "running", True)


def test_retry_needs_a_deadline_in_the_future(tenant, clean_queue):
    run = make_run(state="timed_out", deadline_at=now() - timedelta(hours=1))
    with pytest.raises(TransitionRefused, match="give a new one"):
        commands.retry(run.pk, tenant=tenant, **WHY)
    later = now() + timedelta(hours=1)
    commands.retry(run.pk, tenant=tenant, deadline_at=later, **WHY)
    run.refresh_from_db()
    assert (run.state, run.deadline_at, run.finished_at) == ("queued", later, None)
    assert AuditEntry.objects.get(verb="retry").after["deadline_at"] == str(later)


def test_retry_begins_the_counts_of_the_step_anew(tenant, clean_queue):
    run = make_run(state="failed", step_attempts=3, recoveries=2)
    commands.retry(run.pk, tenant=tenant, **WHY)
    run.refresh_from_db()
    assert (run.step_attempts, run.recoveries, run.wake_cause) == (0, 0, "operator")


def test_deadline_is_moved_only_by_its_verb_and_only_to_the_future(tenant):
    run = make_run(deadline_at=now() + timedelta(hours=1))
    with pytest.raises(InputRefused, match="has passed already"):
        commands.extend_deadline(run.pk, tenant=tenant, deadline_at=now() - timedelta(hours=1), **WHY)
    later = now() + timedelta(hours=5)
    commands.extend_deadline(run.pk, tenant=tenant, deadline_at=later, **WHY)
    run.refresh_from_db()
    assert run.deadline_at == later
    assert AuditEntry.objects.get().verb == "extend_deadline"


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "x" * 100_000, "<script>alert(1)</script>"], ids=repr)
def test_reason_of_any_text_is_kept_safely(tenant, clean_queue, reason):
    run = make_run()
    commands.cancel(run.pk, tenant=tenant, actor="ann", reason=reason)
    entry = AuditEntry.objects.get()
    assert "\0" not in entry.reason
    assert len(entry.reason) < 3000


def test_approval_that_expired_is_refused_before_its_clock_was_seen(tenant):
    wait = make_wait(make_run(state="waiting"), kind="approval", expires_at=now() - timedelta(seconds=1))
    with pytest.raises(TransitionRefused, match="expired"):
        commands.approve(wait.pk, tenant=tenant, actor="ann")


def test_decision_and_its_audit_entry_are_one(tenant, clean_queue):
    run = make_run(state="waiting")
    wait = make_wait(run, kind="approval", name="delivery", facts_hash="f" * 64)
    commands.approve(wait.pk, tenant=tenant, actor="ann", reason="fine", facts_hash="f" * 64)
    wait.refresh_from_db()
    run.refresh_from_db()
    assert (wait.state, wait.answered_by, run.state, run.wake_cause) == ("answered", "ann", "queued", "approval")
    entry = AuditEntry.objects.get()
    assert entry.before["name"] == "delivery"
    assert entry.after["approved"] is True


def test_switch_is_set_once_lifted_once_and_both_are_audited(tenant, clean_queue):
    first = commands.set_switch("tenant", tenant=tenant, **WHY)
    assert commands.set_switch("tenant", tenant=tenant, **WHY).pk == first.pk
    assert commands.lift_switch(first, **WHY)
    assert not commands.lift_switch(PauseSwitch(pk=first.pk, scope="tenant", tenant=tenant), **WHY)
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True)) == ["pause_all", "resume_all"]


def test_extending_a_wait_moves_its_clock_and_says_who_and_why(tenant, clean_queue):
    run = make_run(tenant=tenant, state="waiting")
    wait = make_wait(run, kind="approval", expires_at=now() + timedelta(minutes=1))
    later = now() + timedelta(hours=1)

    commands.extend_wait(wait.pk, tenant=tenant, expires_at=later, **WHY)

    wait.refresh_from_db()
    assert wait.expires_at == later
    assert AuditEntry.objects.get().verb == "extend_wait"
    assert RunEvent.objects.get(run=run).event == "extend_wait"


@pytest.mark.parametrize(
    ("over", "wanted"),
    [
        ({"expires_at": now() - timedelta(seconds=1)}, "has expired"),
        ({"expires_at": None}, "without one"),
        ({"state": "cancelled", "expires_at": now() + timedelta(hours=1)}, "is cancelled"),
    ],
)
def test_a_wait_that_is_over_or_has_no_clock_cannot_be_extended(tenant, clean_queue, over, wanted):
    wait = make_wait(make_run(tenant=tenant, state="waiting"), kind="approval", **over)
    with pytest.raises(TransitionRefused, match=wanted):
        commands.extend_wait(wait.pk, tenant=tenant, expires_at=now() + timedelta(hours=2), **WHY)

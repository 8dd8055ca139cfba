"""The operators' verbs, shared by console, API and command line: each checks, changes, and writes who and why.

A verb and its audit entry are one transaction. What a role may do is asked before a verb is called; what the run's
    state
allows is asked here, of the transition table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.engine import bell, budgeting, findings, guard, questions, queues
from durableops.engine.acting import MAX_REASON_CHARACTERS as MAX_REASON_CHARACTERS
from durableops.engine.acting import Done as Done
from durableops.engine.acting import audit, locked, refused, write
from durableops.engine.acting import audited_refusals as audited_refusals
from durableops.engine.acting import kept_reason as kept_reason
from durableops.engine.compensation import owing
from durableops.engine.compensation.ways import ways
from durableops.engine.deciding import approve as approve
from durableops.engine.deciding import decide as decide
from durableops.engine.deciding import refuse as refuse
from durableops.engine.family import cancel_children, close_waits
from durableops.engine.retention import reopening
from durableops.engine.waking import db_now
from durableops.errors import InputRefused, RunNotFound
from durableops.limits.clocks import Clock
from runs import transitions
from runs.models import AuditEntry, PauseSwitch, Run, Tenant, Wait
from runs.states import PARKED, State, sources
from runs.transitions import record_event

WHAT_WAS_DONE = ("later", "compensate", "keep")
"""What may become of what a cancelled run had done: listed as owed and decided later, undone, or left as it is."""


@audited_refusals
def pause(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let nobody go on with the run: a running one is handed back at its next commit. Its deadlines go on."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.is_terminal:
            raise refused(run, "pause", "an open run")
        if run.paused:
            raise refused(run, "pause", f"one that is not paused; {run.paused_by} paused it already")
        run.paused, run.paused_by = True, actor
        run.save(update_fields=["paused", "paused_by"])
        write(cursor, run, "pause", actor=actor, reason=reason, before={"paused": False}, after={"paused": True})
        queues.let_others_go(cursor, [run.pk])
    settled = run.state != State.RUNNING
    return Done(run_id=run.pk, state=run.state, settled=settled, message="paused." if settled else "asked to pause.")


@audited_refusals
def resume(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let a paused run go on from where it is."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if not run.paused:
            raise refused(run, "resume", "a paused one")
        by, run.paused, run.paused_by = run.paused_by, False, ""
        run.save(update_fields=["paused", "paused_by"])
        write(cursor, run, "resume", actor=actor, reason=reason, before={"paused_by": by}, after={"paused": False})
        queues.let_others_go(cursor, [run.pk])
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state=run.state, settled=True, message="goes on.")


@audited_refusals
def cancel(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, done: str = "later") -> Done:
    """Cancel a run and everything below it. Accepted means that it ends cancelled; a finished run is refused.

    `done` says what becomes of what it had done: one of WHAT_WAS_DONE. A run that is still to stop does that first.
    """
    reason = kept_reason(reason)
    if done not in WHAT_WAS_DONE:
        raise InputRefused(f"what was done is to be {done!r}; give {', '.join(WHAT_WAS_DONE)}.", path="/done")
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.is_terminal:
            raise refused(run, "cancel", "an open run")
        before = {"state": run.state, "cancel_requested": run.cancel_requested}
        Run.objects.filter(pk=run.pk).update(
            cancel_requested=True, cancel_requested_by=actor, cancel_reason=reason, paused=False
        )
        still_open = cancel_children(cursor, run.pk, actor=actor, reason=f"its parent was cancelled: {reason}")
        settled = run.state in PARKED and not still_open
        if settled:
            transitions.fire("cancel", run.pk, using=cursor, actor=actor, reason=reason)
            close_waits(cursor, [run.pk])
            state = State.CANCELLED.value
        else:
            state = run.state
            record_event(cursor, run.pk, "cancel_requested", actor=actor, reason=reason, step_id=run.step_id)
        after = {"state": state, "cancel_requested": True, "done": done}
        audit(run, "cancel", actor=actor, reason=reason, before=before, after=after)
        if done != "keep" and (ways() or owing.ways_for(cursor, run.pk)):
            order = owing.order(cursor, run.pk, choice=done, actor=actor, reason=reason)
            if settled:
                owing.apply_order(cursor, order, run.pk)
        transaction.on_commit(bell.ring)
    message = "cancelled." if settled else "asked to stop; it is cancelled at its next commit."
    return Done(run_id=run.pk, state=state, settled=settled, message=message)


@audited_refusals
def retry(
    run_id: UUID, *, tenant: Tenant, actor: str, reason: str, deadline_at: datetime | None = None,
    budget: Mapping[str, Any] | None = None, plan_hash: str | None = None,
) -> Done:  # fmt: skip
    """Reopen a failed, timed out or exhausted run at its last checkpoint. Committed steps do not run again.

    A run whose deadline has passed needs a new one, and one whose budget is spent more of it. With `plan_hash` it is
    refused unless the guard's plan is still the one that was shown.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.state not in sources("reopen"):
            raise refused(run, "retry", " or ".join(sources("reopen")))
        if owing.has_begun(cursor, run.pk):
            raise refused(run, "retry", "a run of which nothing is being undone; start a new one instead")
        if (gone := reopening.refusal(run)) is not None:
            raise refused(run, "retry", gone)
        if run.parent_wait is not None and run.parent_wait.state != "open":
            raise refused(run, "retry", "one whose parent still waits for it; retry the parent instead")
        now = db_now(cursor)
        deadline = deadline_at or run.deadline_at
        if deadline is not None and deadline <= now:
            raise refused(run, "retry", "a deadline in the future; give a new one with the retry")
        added = budgeting.raise_limits(run, budget, verb="retry") if budget else ({}, {})
        if spent := budgeting.spent_units(run):
            raise refused(run, "retry", f"a budget with something left; add {', '.join(spent)} with the retry")
        guard.check(cursor, "retry", run.pk, plan_hash)
        sets = {
            "deadline_at": deadline,
            "deadline_policy": questions.policy_after(run),
            "step_attempts": 0,
            "recoveries": 0,
            "wake_cause": "operator",
            "wake_detail": f"{actor}: {reason}",
            "woken_at": now,
            "lost_at": None,
        }
        transitions.fire("reopen", run.pk, using=cursor, actor=actor, reason=reason, sets=sets)
        audit(
            run,
            "retry",
            actor=actor,
            reason=reason,
            before={"state": run.state, "deadline_at": str(run.deadline_at), **added[0]},
            after={"state": "queued", "deadline_at": str(deadline), **added[1]},
        )
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state="queued", settled=True, message="reopened at its last checkpoint.")


@audited_refusals
def recheck(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let a parked run be compared with the code once more, after the code was put right."""
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.state not in sources("recheck"):
            raise refused(run, "recheck", "in_review")
        sets = {"wake_cause": "operator", "wake_detail": f"{actor}: {reason}", "woken_at": db_now(cursor)}
        transitions.fire("recheck", run.pk, using=cursor, actor=actor, reason=reason, sets=sets)
        findings.close(cursor, [run.pk], closed_as="rechecked", by=actor, why=reason)
        audit(run, "recheck", actor=actor, reason=reason, before={"state": run.state}, after={"state": "queued"})
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state="queued", settled=True, message="will be compared again.")


@audited_refusals
def extend_deadline(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, deadline_at: datetime) -> Done:
    """Move an open run's deadline. The only thing that moves it."""
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.is_terminal:
            raise refused(run, "extend_deadline", "an open run; retry it with a new deadline instead")
        if deadline_at <= db_now(cursor):
            raise InputRefused(
                f"the new deadline {deadline_at.isoformat()} has passed already; give one in the future."
            )
        before, run.deadline_at = run.deadline_at, deadline_at
        asked = run.deadline_policy == "asked"
        if asked:
            # Whoever is asked whether to give it more time need not answer any more.
            questions.drop(cursor, run.pk, Clock.RUN_DEADLINE, by=actor)
            run.deadline_policy = questions.policy_after(run)
        run.save(update_fields=["deadline_at", "deadline_policy"])
        write(
            cursor,
            run,
            "extend_deadline",
            actor=actor,
            reason=reason,
            before={"deadline_at": str(before)},
            after={"deadline_at": str(deadline_at)},
        )
        transaction.on_commit(bell.ring)
    run.refresh_from_db(fields=["state"])
    return Done(run_id=run.pk, state=run.state, settled=True, message="its deadline was moved.")


@audited_refusals
def extend_wait(
    wait_id: int, *, tenant: Tenant, actor: str, reason: str, expires_at: datetime, of_run: UUID | None = None
) -> Done:
    """Move the clock of an open wait. The run's own deadline may still come first."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait = Wait.objects.filter(pk=wait_id, tenant=tenant).first()
        if wait is None or of_run not in (None, wait.run_id):
            raise RunNotFound(f"there is no wait {wait_id} here.")
        run = locked(tenant, wait.run_id)
        wait.refresh_from_db()
        now = db_now(cursor)
        if wait.state != "open" or (wait.expires_at is not None and wait.expires_at <= now):
            raise refused(run, "extend_wait", f"an open wait; {wait.name!r} is {wait.state} or has expired")
        if wait.expires_at is None and wait.on_timeout != "asked":
            raise refused(run, "extend_wait", f"a wait with a clock; {wait.name!r} waits without one")
        if expires_at <= now:
            raise InputRefused(f"the new end {expires_at.isoformat()} has passed already; give one in the future.")
        before, wait.expires_at = wait.expires_at, expires_at
        if wait.on_timeout == "asked":
            questions.drop(cursor, run.pk, Clock.WAIT_TIMEOUT, by=actor, about=wait.pk)
            wait.on_timeout = "ask"
        wait.save(update_fields=["expires_at", "on_timeout"])
        write(
            cursor,
            run,
            "extend_wait",
            actor=actor,
            reason=reason,
            before={"wait": wait.pk, "name": wait.name, "expires_at": str(before)},
            after={"wait": wait.pk, "name": wait.name, "expires_at": str(expires_at)},
        )
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"the clock of {wait.name} was moved.")


def set_switch(scope: str, *, actor: str, reason: str, tenant: Tenant | None = None, workflow: str = "") -> PauseSwitch:
    """Pause everything, a tenant, or a workflow (of one tenant or of all)."""
    with transaction.atomic():
        switch, made = PauseSwitch.objects.get_or_create(
            scope=scope, tenant=tenant, workflow=workflow, defaults={"actor": actor, "reason": kept_reason(reason)}
        )
        if made:
            _audit_switch(switch, "pause_all", actor=actor, reason=reason)
    return switch


def lift_switch(switch: PauseSwitch, *, actor: str, reason: str) -> bool:
    """Lift a switch. False when somebody else was quicker."""
    with transaction.atomic():
        lifted = PauseSwitch.objects.filter(pk=switch.pk).delete()[0] > 0
        if lifted:
            _audit_switch(switch, "resume_all", actor=actor, reason=reason)
        transaction.on_commit(lambda: bell.ring(64))
    return lifted


def _audit_switch(switch: PauseSwitch, verb: str, *, actor: str, reason: str) -> None:
    target = switch.workflow or (switch.tenant.slug if switch.tenant else "everything")
    AuditEntry.objects.create(
        tenant=switch.tenant,
        actor=actor,
        verb=verb,
        target_kind=f"switch {switch.scope}",
        target_id=target,
        reason=kept_reason(reason),
        after={"workflow": switch.workflow, "scope": switch.scope},
    )

"""What people do to an open doubt short of settling it: taking it on and letting go of it."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from durableops.engine import bell
from durableops.engine.acting import Done, audited_refusals
from durableops.engine.waking import db_now
from durableops.errors import DoubtNotFound, TransitionRefused
from runs.models import AuditEntry, Doubt, Run, Tenant
from runs.states import State
from runs.transitions import fire, record_event


@audited_refusals
def claim(doubt_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that this person looks into it. It keeps nobody from settling it; it tells them that somebody is at it."""
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        if doubt.settled_at is not None or doubt.claimed_by:
            raise refused(doubt, run, "claim_doubt", "one that nobody is on")
        before, after = {"claimed_by": ""}, {"claimed_by": actor}
        cursor.execute("UPDATE runs_doubt SET claimed_by = %s, claimed_at = now() WHERE id = %s", [actor, doubt.pk])
        write(cursor, doubt, run, "claim_doubt", actor=actor, reason=reason, before=before, after=after)
    return Done(run_id=run.pk, state=run.state, settled=True, message="it is yours.")


@audited_refusals
def unclaim(doubt_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that nobody looks into it any more; also for somebody else who is away."""
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        if doubt.settled_at is not None or not doubt.claimed_by:
            raise refused(doubt, run, "unclaim_doubt", "one that somebody is on")
        before, after = {"claimed_by": doubt.claimed_by}, {"claimed_by": ""}
        cursor.execute("UPDATE runs_doubt SET claimed_by = '', claimed_at = NULL WHERE id = %s", [doubt.pk])
        write(cursor, doubt, run, "unclaim_doubt", actor=actor, reason=reason, before=before, after=after)
    return Done(run_id=run.pk, state=run.state, settled=True, message="it is free again.")


@audited_refusals
def ask_probe(doubt_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Have the tool's probe asked now instead of at its next time. It is asked by the run's own step."""
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        if doubt.settled_at is not None or doubt.probe_at is None or run.state != State.IN_DOUBT:
            raise refused(doubt, run, "probe_doubt", "an open one with a probe, of a run that is in doubt")
        cursor.execute("UPDATE runs_doubt SET probe_at = now() WHERE id = %s", [doubt.pk])
        detail = f"{actor} has its probe asked"
        sets = {"wake_cause": "probe", "wake_detail": detail, "woken_at": db_now(cursor), "lost_at": None}
        fire("probe", run.pk, using=cursor, actor=actor, reason=detail, sets=sets)
        write(cursor, doubt, run, "probe_doubt", actor=actor, reason=reason, before={}, after={})
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state="queued", settled=True, message="its probe is asked.")


def locked(doubt_id: int, tenant: Tenant) -> tuple[Doubt, Run]:
    """The doubt with its effect, its run's row locked first. Raises DoubtNotFound."""
    found = Doubt.objects.filter(pk=doubt_id, tenant=tenant).values_list("run_id", flat=True).first()
    if found is None:
        raise DoubtNotFound(f"there is no doubt {doubt_id} here.", doubt=doubt_id)
    run = Run.objects.select_for_update(no_key=True).get(pk=found)
    doubt = (
        Doubt.objects.select_for_update(no_key=True, of=("self", "effect")).select_related("effect").get(pk=doubt_id)
    )
    return doubt, run


def refused(doubt: Doubt, run: Run, verb: str, wanted: str) -> TransitionRefused:
    """The refusal that says what became of the doubt meanwhile."""
    if doubt.settled_at is not None:
        state = (
            f"was settled as {doubt.settled_as.replace('_', ' ')} by {doubt.settled_by} at {doubt.settled_at:%H:%M:%S}"
        )
    elif doubt.claimed_by:
        state = f"is claimed by {doubt.claimed_by} since {doubt.claimed_at:%H:%M:%S}"
    else:
        state = "is open and claimed by nobody"
    return TransitionRefused(
        f"the doubt about {doubt.effect.tool} for {doubt.effect.resource!r} {state}; '{verb}' needs {wanted}. "
        "Nothing was changed.",
        run=run.pk, state=doubt.settled_as or "open", event=verb, wanted=wanted,
    )  # fmt: skip


def write(
    cursor: Any, doubt: Doubt, run: Run, verb: str, *, actor: str, reason: str, before: dict[str, Any],
    after: dict[str, Any],
) -> None:  # fmt: skip
    """One history row on the run and one audit entry, whose target is the run so that its page shows both."""
    effect = doubt.effect
    facts = {"doubt": doubt.pk, "effect": effect.pk, "tool": effect.tool, "resource": effect.resource}
    record_event(cursor, run.pk, verb, actor=actor, reason=reason, step_id=effect.step_id, data={**facts, **after})
    AuditEntry.objects.create(
        tenant_id=run.tenant_id, actor=actor, verb=verb, target_kind="run", target_id=str(run.pk), reason=reason,
        before={**facts, **before}, after=after,
    )  # fmt: skip

"""Legal holds: while one stands, nothing of what it names goes. Placed and lifted by people, each with its reason."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from durableops.checkpoints.codec import check_key
from durableops.engine.acting import Done
from durableops.engine.retention.words import reason_of
from durableops.errors import HoldNotFound, InputRefused, RunNotFound
from runs.models import AuditEntry, LegalHold, Relook, Run, Tenant


def place(
    *, tenant: Tenant, run_id: UUID | None = None, label: str = "", value: str = "", actor: str, reason: str
) -> LegalHold:
    """Hold a run, whatever carries a label, or (with neither) the whole tenant. Holds from its commit on.

    Raises RunNotFound, InputRefused.
    """
    reason = reason_of(reason)
    if run_id is not None and label:
        raise InputRefused("a hold is on a run or on a label, not on both.")
    if label:
        check_key(label, what="label")
        check_key(value, what="value of the label")
    scope = "run" if run_id is not None else "label" if label else "tenant"
    with transaction.atomic():
        # With the run's row locked a cleaner that is at it has finished, or finds the hold.
        if run_id is not None and not Run.objects.select_for_update(no_key=True).filter(pk=run_id, tenant=tenant):
            raise RunNotFound(f"there is no run {run_id} here.", run=str(run_id))
        hold = LegalHold.objects.create(
            scope=scope, tenant=tenant, run_id=run_id, label=label, value=value, placed_by=actor, reason=reason
        )
        _audit(hold, "place_hold", actor=actor, reason=reason)
    return hold


def lift(hold_id: int, *, tenant: Tenant, actor: str, reason: str) -> LegalHold:
    """Lift a hold. What is due goes with the cleaner's next looks. Raises HoldNotFound, InputRefused."""
    reason = reason_of(reason)
    with transaction.atomic():
        hold = LegalHold.objects.select_for_update().filter(pk=hold_id, tenant=tenant).first()
        if hold is None:
            raise HoldNotFound(f"there is no legal hold {hold_id} here.")
        if hold.lifted_at is not None:
            raise InputRefused(f"legal hold {hold_id} was lifted by {hold.lifted_by} already.")
        hold.lifted_at, hold.lifted_by, hold.lift_reason = timezone.now(), actor, reason
        hold.save(update_fields=["lifted_at", "lifted_by", "lift_reason"])
        Relook.objects.create(tenant=tenant, run_id=hold.run_id, label=hold.label, value=hold.value)
        _audit(hold, "lift_hold", actor=actor, reason=reason)
    return hold


def hold_run(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Hold one run, as a verb on it. Raises RunNotFound, InputRefused."""
    hold = place(tenant=tenant, run_id=run_id, actor=actor, reason=reason)
    return _done(run_id, f"legal hold {hold.pk} stands; nothing of the run goes any more.")


def let_run_go(run_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Lift every hold that is on this run alone, as a verb on it. Raises HoldNotFound, InputRefused."""
    with transaction.atomic():
        standing = LegalHold.objects.filter(tenant=tenant, run_id=run_id, lifted_at=None).order_by("pk")
        lifted = [lift(hold.pk, tenant=tenant, actor=actor, reason=reason).pk for hold in standing]
    if not lifted:
        raise HoldNotFound(f"no legal hold stands on run {run_id}; one on a label or on its tenant is lifted there.")
    return _done(run_id, f"legal hold {', '.join(map(str, lifted))} was lifted.")


def _done(run_id: UUID, message: str) -> Done:
    return Done(run_id=run_id, state=Run.objects.values_list("state", flat=True).get(pk=run_id), settled=True,
                message=message)  # fmt: skip


def _audit(hold: LegalHold, verb: str, *, actor: str, reason: str) -> None:
    on_run = hold.scope == "run"
    AuditEntry.objects.create(
        tenant=hold.tenant,
        actor=actor,
        verb=verb,
        target_kind="run" if on_run else "legal hold",
        target_id=str(hold.run_id) if on_run else str(hold.pk),
        reason=reason,
        after={"hold": hold.pk, "scope": hold.scope, "label": hold.label, "value": hold.value},
    )

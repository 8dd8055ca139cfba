"""What people do to a bulk action as a whole: start it, hold it, let it go on, abort it. Each with its audit entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection, transaction

from durableops.engine import guard
from durableops.engine.acting import kept_reason
from durableops.engine.bulk import planning
from durableops.engine.bulk.verbs import verb
from durableops.engine.waking import db_now
from durableops.errors import BulkNotFound, BulkPlanChanged, BulkRefused, InputRefused, WorkflowNotFound
from runs.models import AuditEntry, Bulk, Tenant


def find(bulk_id: int, *, tenant: Tenant) -> Bulk:
    """One bulk action. Raises BulkNotFound, also for one of another tenant."""
    found = Bulk.objects.filter(pk=bulk_id, tenant=tenant).first()
    if found is None:
        raise BulkNotFound(f"there is no bulk action {bulk_id} here.")
    return found


def start(
    bulk_id: int, *, tenant: Tenant, actor: str, reason: str, plan_hash: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> Bulk:  # fmt: skip
    """Begin to execute a previewed action: exactly the runs that were captured. Starting twice is refused.

    So is starting one whose plan is not what was shown any more; the plan is then made anew. `plan_hash` as for
    `guard.check`. `arguments`, if given, replace those of the preview.
    """
    _refuse_changed(bulk_id, tenant, plan_hash)
    return _move(
        bulk_id, "start", "running", {"preview"}, tenant=tenant, actor=actor, reason=reason, arguments=arguments
    )


def _refuse_changed(bulk_id: int, tenant: Tenant, shown: str | None) -> None:
    """Each run is compared once more when its turn comes; this tells a person before anything has begun."""
    with transaction.atomic(), connection.cursor() as cursor:
        bulk = _locked(bulk_id, tenant)
        known = verb(bulk.verb)
        if bulk.state != "preview" or not known.guard:
            return
        try:
            looked = planning.look(cursor, bulk, known)
        except WorkflowNotFound as missing:
            raise BulkRefused(
                f"{missing.detail} Start it where that version is. Nothing was changed.", bulk=bulk.pk, state=bulk.state
            ) from None
        changed = planning.changed(bulk, looked)
        if changed:
            planning.note(cursor, bulk, looked)
    what = ""
    if changed:
        what = f"{changed} of its {bulk.runs} runs have changed since it was shown."
    elif shown == guard.UNSEEN and bulk.plan and not bulk.plan.get("harmless"):
        what = "It is not harmless, and its plan was not looked at."
    elif shown not in (None, guard.UNSEEN, bulk.plan_hash):
        what = "What it would send again has changed since it was shown."
    if what:
        raise BulkPlanChanged(
            f"{what} Nothing was done; look at the plan as it is now.",
            bulk=bulk.pk, state=bulk.state, plan={**bulk.plan, "plan_hash": bulk.plan_hash},
        )  # fmt: skip


def hold(bulk_id: int, *, tenant: Tenant, actor: str, reason: str) -> Bulk:
    """Pause it: no further run is touched once this has returned. What was done stays done."""
    return _move(bulk_id, "pause", "paused", {"running"}, tenant=tenant, actor=actor, reason=reason)


def go_on(bulk_id: int, *, tenant: Tenant, actor: str, reason: str) -> Bulk:
    """Let a paused one go on with the runs that are left."""
    return _move(bulk_id, "resume", "running", {"paused"}, tenant=tenant, actor=actor, reason=reason)


def abort(bulk_id: int, *, tenant: Tenant, actor: str, reason: str) -> Bulk:
    """End it: the runs that are left stay as they are, and no further one is touched once this has returned."""
    return _move(bulk_id, "abort", "aborted", {"running", "paused"}, tenant=tenant, actor=actor, reason=reason)


def discard(bulk_id: int, *, tenant: Tenant) -> None:
    """Forget a preview; nothing was done, so nothing is audited. Raises BulkRefused once it was started."""
    with transaction.atomic():
        bulk = _locked(bulk_id, tenant)
        if bulk.state != "preview":
            raise _refused(bulk, "discard", "a preview")
        bulk.delete()


def _move(
    bulk_id: int, what: str, target: str, sources: set[str], *, tenant: Tenant, actor: str, reason: str,
    arguments: Mapping[str, Any] | None = None,
) -> Bulk:  # fmt: skip
    said = kept_reason(reason.strip())
    if not said:
        raise InputRefused("a bulk action wants a reason; it stands in the audit.", path="/reason")
    with transaction.atomic(), connection.cursor() as cursor:
        bulk = _locked(bulk_id, tenant)
        if bulk.state not in sources:
            raise _refused(bulk, what, " or ".join(sorted(sources)))
        before, now = bulk.state, db_now(cursor)
        bulk.state, bulk.held_by = target, actor if target in ("paused", "aborted") else ""
        if what == "start":
            bulk.actor, bulk.reason, bulk.started_at = actor, said, now
            if arguments is not None:
                bulk.arguments = verb(bulk.verb).read(arguments)
        if bulk.is_final:
            bulk.finished_at = now
        bulk.save(update_fields=["state", "held_by", "actor", "reason", "arguments", "started_at", "finished_at"])
        _audit(bulk, what, actor=actor, reason=said, before={"state": before})
    return bulk


def _locked(bulk_id: int, tenant: Tenant) -> Bulk:
    """With its row locked: waits for the run that is being done just now, and lets no other begin."""
    found = Bulk.objects.select_for_update(no_key=True).filter(pk=bulk_id, tenant=tenant).first()
    if found is None:
        raise BulkNotFound(f"there is no bulk action {bulk_id} here.")
    return found


def _refused(bulk: Bulk, what: str, wanted: str) -> BulkRefused:
    by = f" by {bulk.held_by or bulk.actor}" if bulk.state != "preview" else ""
    return BulkRefused(
        f"bulk action {bulk.pk} is {bulk.state}{by}; '{what}' needs {wanted}. Nothing was changed.",
        bulk=bulk.pk,
        state=bulk.state,
        wanted=wanted,
    )


def _audit(bulk: Bulk, what: str, *, actor: str, reason: str, before: dict[str, Any]) -> None:
    AuditEntry.objects.create(
        tenant_id=bulk.tenant_id,
        actor=actor,
        verb=f"bulk_{what}",
        target_kind="bulk",
        target_id=str(bulk.pk),
        reason=reason,
        before=before,
        after={
            "state": bulk.state,
            "verb": bulk.verb,
            "runs": bulk.runs,
            "selection": bulk.selection.get("words", ""),
            "arguments": bulk.arguments,
        },
    )

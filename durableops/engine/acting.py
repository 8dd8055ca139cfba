"""What every verb of a person shares: its answer, the locked run, the refusal, the history row and the audit entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from uuid import UUID

from durableops.checkpoints.failures import safe_text
from durableops.errors import RunNotFound, TransitionRefused
from durableops.masking import mask_text
from runs.models import AuditEntry, Run, Tenant
from runs.transitions import record_event

MAX_REASON_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a verb came to."""

    run_id: UUID | None
    state: str
    """The run's state after it."""
    settled: bool
    """False when the run's holder still has to act on it: a running run that was asked to stop."""
    message: str
    replayed: bool = False
    """Whether an earlier request had done it."""


def audited_refusals(verb: Callable[..., Done]) -> Callable[..., Done]:
    """Audit also what was asked for and refused: who pressed, and what they could not know."""

    @wraps(verb)
    def asked(target: Any, *, tenant: Tenant, actor: str, reason: str = "", **more: Any) -> Done:
        try:
            return verb(target, tenant=tenant, actor=actor, reason=reason, **more)
        except TransitionRefused as refused:
            # In a transaction of its own: that of the verb is rolled back.
            AuditEntry.objects.create(
                tenant=tenant,
                actor=actor,
                verb=f"{refused.event} (refused)",
                target_kind="run",
                target_id=str(refused.run),
                reason=kept_reason(reason),
                before={"state": refused.state},
                after={"refused": safe_text(str(refused), limit=MAX_REASON_CHARACTERS)},
            )
            raise

    return asked


def locked(tenant: Tenant, run_id: UUID) -> Run:
    """The run with its row locked. Raises RunNotFound, also for one of another tenant."""
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id, tenant=tenant).first()
    if run is None:
        raise RunNotFound(f"there is no run {run_id} here.", run=str(run_id))
    return run


def refused(run: Run, verb: str, wanted: str) -> TransitionRefused:
    """The refusal that says how the run is and what the verb wanted."""
    shown = f"{run.state}{' and paused' if run.paused else ''}"
    return TransitionRefused(
        f"run {run.pk} is {shown}; '{verb}' needs {wanted}. Nothing was changed.",
        run=run.pk,
        state=run.state,
        event=verb,
        wanted=wanted,
    )


def write(
    cursor: Any, run: Run, verb: str, *, actor: str, reason: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """One history row on the run and one audit entry."""
    record_event(cursor, run.pk, verb, actor=actor, reason=kept_reason(reason), step_id=run.step_id, data=after)
    audit(run, verb, actor=actor, reason=reason, before=before, after=after)


def audit(run: Run, verb: str, *, actor: str, reason: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """One audit entry about the run."""
    AuditEntry.objects.create(
        tenant_id=run.tenant_id,
        actor=actor,
        verb=verb,
        target_kind="run",
        target_id=str(run.pk),
        reason=kept_reason(reason),
        before=before,
        after=after,
    )


def kept_reason(text: str) -> str:
    """A reason as it is kept. Kept again, it stays as it is."""
    kept = safe_text(mask_text(text))
    return kept if len(kept) <= MAX_REASON_CHARACTERS else kept[: MAX_REASON_CHARACTERS - 1] + "…"

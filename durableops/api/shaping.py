"""Rows as the API shows them. Who sees payloads is said by the caller; what looks like a secret is masked for all."""

from __future__ import annotations

from typing import Any

from durableops.api.schemas import BudgetState, OpenWait, Payload, Progress, RunError, RunSummary
from durableops.checkpoints import codec
from durableops.engine.budgeting import OfRun
from durableops.engine.spent import shown
from durableops.errors import CompatibilityError
from durableops.masking import mask, mask_text
from runs.models import Run, Wait


def summary(run: Run) -> dict[str, Any]:
    """The fields every view of a run has."""
    progress = run.progress_done
    failed = RunError(
        kind=run.error_class, message=mask_text(run.error_message), fingerprint=run.error_fingerprint
    )  # fmt: skip
    return {
        "id": run.pk,
        "workflow": run.workflow,
        "version": run.version,
        "start_key": run.start_key,
        "state": run.state,
        "state_since": run.state_since,
        "step": run.step_id,
        "progress": None
        if progress is None
        else Progress(done=progress, total=run.progress_total, note=run.progress_note),
        "labels": run.labels,
        "paused": run.paused,
        "cancel_requested": run.cancel_requested,
        "created_at": run.created_at,
        "created_by": run.created_by,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "deadline_at": run.deadline_at,
        "resumes": run.resumes,
        "effects_avoided": run.effects_avoided,
        "error": failed if run.error_class else None,
    }


def summary_of(run: Run) -> RunSummary:
    return RunSummary(**summary(run))


def wait(row: Wait, *, sight: bool) -> OpenWait:
    return OpenWait(
        id=row.pk,
        kind=row.kind,
        name=row.name,
        key=row.author_key,
        correlation=row.correlation,
        step=row.step_id,
        opened_at=row.opened_at,
        due_at=row.due_at,
        expires_at=row.expires_at,
        on_timeout=row.on_timeout,
        question=mask_text(row.question),
        facts_hash=row.facts_hash,
        facts=document(row.facts) if sight and row.facts else None,
    )


def budget(row: OfRun) -> BudgetState:
    return BudgetState(
        unit=row.unit, currency=row.currency, limit=shown(row.most), spent=shown(row.spent),
        reserved=shown(row.reserved), policy=row.policy,
    )  # fmt: skip


def payload(text: str, *, checkpoint: int, sight: bool) -> Payload:
    """A stored document, or only where and how large it is."""
    size = len(text.encode())
    return Payload(checkpoint=checkpoint, bytes=size, shown=sight, value=document(text) if sight else None)


def document(text: str) -> Any:
    try:
        return mask(codec.loads(text))
    except CompatibilityError as problem:
        return {"unreadable": problem.detail}

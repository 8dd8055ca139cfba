"""What the record says about a run that was interrupted: recovery, refusals, order, approvals, resumes. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import ceil
from uuid import UUID

from django.db import connection
from django.db.models import Min

from durableops.checkpoints import codec
from runs.models import AuditEntry, Checkpoint, IdempotencyRecord, Receipt, Run, RunEvent, Wait


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """What a drill did to the worker that held a run."""

    how: str
    worker_id: UUID
    fence: int
    """The fence under which that worker held it."""
    step: str
    """The step that the run was to enter, or was in."""
    at: datetime
    """On the database's clock, just before it was done."""


def database_time() -> datetime:
    """The clock that recoveries are measured on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
        return found


def started_again_at(run_id: UUID, *, after: int) -> datetime | None:
    """When the first step was entered under the next fence: the earliest thing on record that needs it to have begun.

    A step that waits has no checkpoint yet; its first intent or its suspension is later than its start, never earlier.
    """
    claim = RunEvent.objects.filter(run_id=run_id, event="claim", fence__gt=after).order_by("fence").first()
    if claim is None:
        return None
    signs = [
        Checkpoint.objects.filter(run_id=run_id, fence=claim.fence).aggregate(at=Min("started_at"))["at"],
        # A call that is sent again takes the new fence and keeps the time of its intent.
        IdempotencyRecord.objects.filter(run_id=run_id, fence=claim.fence, intended_at__gte=claim.at).aggregate(
            at=Min("intended_at")
        )["at"],
        RunEvent.objects.filter(run_id=run_id, fence=claim.fence, id__gt=claim.pk).aggregate(at=Min("at"))["at"],
    ]
    return min((at for at in signs if at is not None), default=None)


def recovery_seconds(run_id: UUID, interruption: Interruption) -> float | None:
    """From the strike to the next step starting."""
    started = started_again_at(run_id, after=interruption.fence)
    return None if started is None else (started - interruption.at).total_seconds()


def spread(seconds: list[float]) -> dict[str, float | None]:
    """p50, p95 and max by nearest rank: each is a value that was measured."""
    ranked = sorted(seconds)

    def rank(share: float) -> float | None:
        return round(ranked[max(0, ceil(share * len(ranked)) - 1)], 3) if ranked else None

    return {"p50": rank(0.5), "p95": rank(0.95), "max": rank(1.0)}


def refused_late(run_id: UUID, interruption: Interruption) -> int:
    """How often the holder that was interrupted came back and was refused."""
    return RunEvent.objects.filter(
        run_id=run_id, event="late_result_rejected", worker_id=interruption.worker_id, fence=interruption.fence
    ).count()


def late_results_rejected(run_id: UUID) -> int:
    """Refusals of late results on the timeline."""
    return RunEvent.objects.filter(run_id=run_id, event="late_result_rejected").count()


_FOREIGN = """
SELECT w.what, w.fence, c.worker_id, w.worker_id FROM (
    SELECT 'checkpoint ' || seq AS what, worker_id, fence FROM runs_checkpoint WHERE run_id = %(run)s AND seq > 0
    UNION ALL
    SELECT 'event ' || event, worker_id, fence FROM runs_event
    WHERE run_id = %(run)s AND worker_id IS NOT NULL AND event NOT IN ('claim', 'late_result_rejected')
) w LEFT JOIN LATERAL (
    SELECT e.worker_id FROM runs_event e WHERE e.run_id = %(run)s AND e.event = 'claim' AND e.fence <= w.fence
    ORDER BY e.fence DESC LIMIT 1
) c ON true
WHERE c.worker_id IS DISTINCT FROM w.worker_id"""


def foreign_writes(run_id: UUID) -> list[str]:
    """What was written under a fence by somebody other than the worker that claimed it."""
    with connection.cursor() as cursor:
        cursor.execute(_FOREIGN, {"run": run_id})
        return [
            f"{what} under fence {fence}, which {holder} claimed, was written by {writer}"
            for what, fence, holder, writer in cursor.fetchall()
        ]


def claims(run_id: UUID) -> list[int]:
    """The fence of each claim, in order."""
    return list(RunEvent.objects.filter(run_id=run_id, event="claim").order_by("id").values_list("fence", flat=True))


def steps_committed(run_id: UUID) -> list[str]:
    """The steps as they were committed, in order; one that was committed twice is there twice."""
    rows = Checkpoint.objects.filter(run_id=run_id, kind__in=["step", "finish"])
    return list(rows.order_by("seq").values_list("step_id", flat=True))


def cursor_regressions(run_id: UUID) -> int:
    """Checkpoint numbers that leave a gap or come again, and cursors that go back within their step and lineage."""
    rows = list(
        Checkpoint.objects.filter(run_id=run_id)
        .order_by("at", "seq")
        .values_list("lineage", "step_id", "seq", "cursor")
    )
    back = sum(later[2] != earlier[2] + 1 for earlier, later in pairwise(rows))
    for earlier, later in pairwise(rows):
        old, new = earlier[3], later[3]
        if earlier[:2] == later[:2] and isinstance(old, int | float) and isinstance(new, int | float) and new < old:
            back += 1
    return back


def approvals_skipped(run_id: UUID, *, wanted: dict[str, str]) -> list[str]:
    """Approvals (name to step) that the run went past without a person's audited yes. Each is told in words."""
    found = []
    for name, step in wanted.items():
        wait = Wait.objects.filter(run_id=run_id, kind="approval", name=name, step_id=step).first()
        passed = Checkpoint.objects.filter(run_id=run_id, step_id=step, kind__in=["step", "finish"]).first()
        if passed is None:
            continue
        if wait is None or wait.answered_at is None or not codec.loads(wait.answer or "{}").get("approved"):
            found.append(f"step {step!r} was committed and approval {name!r} was never given")
        elif wait.answered_at > passed.at:
            found.append(f"step {step!r} was committed before approval {name!r} was given")
        elif not _is_audited(run_id, wait):
            found.append(f"approval {name!r} has no audit entry")
    return found


def _is_audited(run_id: UUID, wait: Wait) -> bool:
    entries = AuditEntry.objects.filter(
        target_kind="run", target_id=str(run_id), verb="approve", actor=wait.answered_by
    )
    return any(entry.before.get("wait") == wait.pk for entry in entries)


def receipts(run_id: UUID) -> list[Receipt]:
    """Every resume, oldest first."""
    return list(Receipt.objects.filter(run_id=run_id).order_by("number"))


def tell(receipt: Receipt) -> str:
    """One resume in words: cause, noticed after, running again after, what was reused and repeated."""
    told = f"{receipt.number}. {receipt.cause} at step {receipt.step_id!r}"
    if receipt.detail:
        told += f" ({receipt.detail})"
    noticed, recovered = receipt.detection_seconds, receipt.recovery_seconds
    if noticed is not None and recovered is not None:
        told += (
            f": noticed {noticed:.2f} s after the last sign of life, in a worker's hand again after {recovered:.2f} s"
        )
    elif receipt.noticed_at is not None:
        delay = (receipt.resumed_at - receipt.noticed_at).total_seconds()
        told += f": in a worker's hand {max(0.0, delay):.2f} s after it came"
    told += f"; {receipt.reused_effects} recorded results reused, {receipt.repeated_effects} calls sent again"
    return told


def is_over(run: Run) -> bool:
    """Whether nothing more will happen to the run by itself."""
    return run.is_terminal or run.state in ("in_doubt", "in_review")

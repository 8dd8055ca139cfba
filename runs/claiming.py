"""The claim: one statement that takes due runs, raises their fences and brings what is needed to go on with them.

A worker that finishes a run takes the next one in the same statement: one commit less for each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.fenced import SWITCHED_OFF, Attached, FencedWrite, Written, execute_with
from runs.states import TRANSITIONS, sources
from runs.transitions import Cursor, sets_for


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A run in hand, with the checkpoint it goes on from."""

    run_id: UUID
    tenant_id: int
    tenant: str
    workflow: str
    plan_id: int
    fence: int
    lineage: int
    head_seq: int
    state_seq: int
    step_id: str
    cursor: Any
    step_entries: int
    step_attempts: int
    recoveries: int
    resumes: int
    wake_cause: str
    cancel_requested: bool
    deadline_left: float | None
    labels: dict[str, Any]
    created_at: Any
    state_json: str
    """The committed state, byte for byte."""
    effects_through: int
    plan_version: int
    schema_version: int
    schema_hash: str
    plan_hash: str
    has_parent: bool


# SKIP LOCKED: an idle transaction that holds one row delays that run, not the queue (C160).
# The run's deadline is looked at here, so that no run is started only to be stopped (C055).
def _ctes(only_if: str) -> str:
    """The claim as named queries; `following` holds what a holder needs of each run that was taken."""
    return f"""
next AS MATERIALIZED (
    SELECT r.id FROM runs_run r
    WHERE r.state IN ({", ".join(f"'{s}'" for s in sources("claim"))}) AND NOT r.paused AND r.due_at <= now()
      AND (r.deadline_at IS NULL OR r.deadline_at > now()) AND {only_if}
      AND NOT {SWITCHED_OFF.format(run="r")}
      AND EXISTS (SELECT 1 FROM runs_worker w WHERE w.id = %(worker)s AND w.ended_at IS NULL AND NOT w.draining)
    ORDER BY r.priority DESC, r.due_at, r.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF r SKIP LOCKED
), claimed AS (
    UPDATE runs_run r SET {sets_for(TRANSITIONS["claim"].target)}, worker_id = %(worker)s, fence = r.fence + 1,
        step_entries = r.step_entries + CASE WHEN r.started_at IS NULL THEN 0 ELSE 1 END,
        resumes = r.resumes + CASE WHEN r.started_at IS NULL THEN 0 ELSE 1 END,
        started_at = coalesce(r.started_at, now())
    FROM next WHERE r.id = next.id
    RETURNING r.*
), history AS (
    INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor, reason,
        data)
    SELECT c.id, now(), 'claim', 'queued', 'running', c.step_id, c.step_attempts, c.fence, c.worker_id, '', '',
        jsonb_build_object('resume', c.resumes)
    FROM claimed c
), receipts AS (
    INSERT INTO runs_receipt (run_id, number, cause, detail, step_id, fence, worker_id, lost_at, noticed_at, resumed_at,
        reused_effects, repeated_effects, entered_again)
    SELECT c.id, c.resumes, c.wake_cause, c.wake_detail, c.step_id, c.fence, c.worker_id, c.lost_at, c.woken_at,
        clock_timestamp(), 0, 0, c.wake_cause NOT IN ('slice', 'pause')
    FROM claimed c WHERE c.resumes > 0
), following AS (
    SELECT c.id, c.tenant_id, t.slug, c.workflow, c.plan_id, c.fence, c.lineage, c.head_seq, c.state_seq, c.step_id,
        c.cursor, c.step_entries, c.step_attempts, c.recoveries, c.resumes, c.wake_cause, c.cancel_requested,
        extract(epoch FROM c.deadline_at - now())::float8, c.labels, c.created_at, s.state, h.effects_through,
        p.version, p.schema_version, p.schema_hash, p.plan_hash, c.parent_id IS NOT NULL
    FROM claimed c
    JOIN runs_tenant t ON t.id = c.tenant_id
    JOIN runs_workflow_plan p ON p.id = c.plan_id
    JOIN runs_checkpoint s ON s.run_id = c.id AND s.seq = c.state_seq
    JOIN runs_checkpoint h ON h.run_id = c.id AND h.seq = c.head_seq
    ORDER BY c.priority DESC, c.id
)"""


_CLAIM = f"WITH {_ctes('true')} SELECT * FROM following"
# A refused write takes no run: whoever lost its fence learns of that first.
_CLAIM_WITH_WRITE = _ctes("EXISTS (SELECT 1 FROM run)")


def claim(cursor: Cursor, *, worker_id: UUID, limit: int = 1) -> list[Claimed]:
    """Take up to `limit` due runs for this worker, most urgent first. Empty when nothing is claimable."""
    cursor.execute(_CLAIM, {"worker": worker_id, "limit": limit})
    return [_claimed(row) for row in cursor.fetchall()]


def execute_and_claim(cursor: Cursor, write: FencedWrite) -> tuple[Written | None, Claimed | None]:
    """Write what ends a run and take the next one for the same worker, as one statement and one commit."""
    attached = Attached(ctes=_CLAIM_WITH_WRITE, answer="following", params={"limit": 1})
    written, row = execute_with(cursor, write, attached)
    return written, None if row is None else _claimed(row)


def _claimed(row: tuple[Any, ...]) -> Claimed:
    return Claimed(**dict(zip(_FIELDS, row, strict=True)))  # fields stand in the order of `following`


_FIELDS = tuple(Claimed.__dataclass_fields__)

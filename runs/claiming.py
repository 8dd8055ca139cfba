"""The claim: one statement that takes due runs, raises their fences and brings what is needed to go on with them.

A worker that finishes a run takes the next one in the same statement: one commit less for each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.fenced import SWITCHED_OFF, Attached
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


# Tenants take turns: the next tenants that have something claimable, from the one after the last served on, and round
# again. Each is found by one descent of the index (isolated, tenant, …), however long the queue of another is.
_QUEUED = f"""r.state IN ({", ".join(f"'{s}'" for s in sources("claim"))}) AND NOT r.paused AND r.due_at <= now()
            AND r.isolated = %(isolated)s"""


def _turns(only_if: str) -> str:
    return f"""
turn AS (
    SELECT %(after)s::bigint AS tenant_id, false AS again, 0 AS number
    WHERE {only_if} AND EXISTS (SELECT 1 FROM runs_worker w
        WHERE w.id = %(worker)s AND w.ended_at IS NULL AND NOT w.draining)
    UNION ALL
    SELECT f.tenant_id, f.again, t.number + 1 FROM turn t CROSS JOIN LATERAL (
        (SELECT r.tenant_id, t.again FROM runs_run r
         WHERE {_QUEUED} AND r.tenant_id > t.tenant_id AND (NOT t.again OR r.tenant_id <= %(after)s)
         ORDER BY r.tenant_id LIMIT 1)
        UNION ALL
        (SELECT r.tenant_id, true FROM runs_run r
         WHERE NOT t.again AND {_QUEUED} AND r.tenant_id <= %(after)s
         ORDER BY r.tenant_id LIMIT 1)
        LIMIT 1
    ) f WHERE t.number < %(turns)s
)"""


# SKIP LOCKED: an idle transaction that holds one row delays that run, not the queue (C160).
# The run's deadline is looked at here, so that no run is started only to be stopped (C055).
def _ctes(only_if: str) -> str:
    """The claim as named queries; `following` holds what a holder needs of each run that was taken."""
    return f"""{_turns(only_if)},
next AS MATERIALIZED (
    SELECT c.id FROM turn t CROSS JOIN LATERAL (
        SELECT r.id FROM runs_run r
        WHERE {_QUEUED} AND r.tenant_id = t.tenant_id AND (r.deadline_at IS NULL OR r.deadline_at > now())
          AND NOT {SWITCHED_OFF.format(run="r")}
        ORDER BY r.priority DESC, r.due_at, r.id
        LIMIT (SELECT ceil(%(limit)s::float8 / greatest(1, max(x.number)))::int FROM turn x)
        FOR NO KEY UPDATE OF r SKIP LOCKED
    ) c WHERE t.number > 0
    LIMIT %(limit)s
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
        clock_timestamp(), 0, 0, c.wake_cause NOT IN ('slice', 'pause', 'isolation')
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


_CLAIM = f"WITH RECURSIVE {_ctes('true')} SELECT * FROM following"
# A refused write takes no run: whoever lost its fence learns of that first.
_CLAIM_WITH_WRITE = _ctes("EXISTS (SELECT 1 FROM run)")
FEWEST_TURNS = 4
"""A claim of one run looks at so many tenants: the first one's runs may all be locked, or under a switch."""


@dataclass(frozen=True, kw_only=True)
class Taker:
    """Who claims."""

    worker_id: UUID
    isolated: bool = False
    """Whether this worker takes the runs that asked for a process of their own; others take the rest."""
    after_tenant: int = 0
    """The tenant served last: the next one's turn comes first."""

    def params(self, limit: int) -> dict[str, Any]:
        return {
            "worker": self.worker_id,
            "isolated": self.isolated,
            "after": self.after_tenant,
            "limit": limit,
            "turns": max(limit, FEWEST_TURNS),
        }


def claim(cursor: Cursor, taker: Taker, *, limit: int = 1) -> list[Claimed]:
    """Take up to `limit` due runs, the most urgent of each tenant in turn. Empty when nothing is claimable.

    Fewer than `limit` may mean that a tenant had less than its share: ask again until nothing comes.
    """
    cursor.execute(_CLAIM, taker.params(limit))
    return [_claimed(row) for row in cursor.fetchall()]


def with_next(taker: Taker) -> Attached:
    """The claim of one run, to be attached to the write that ends another."""
    return Attached(ctes=_CLAIM_WITH_WRITE, answer="following", params=taker.params(1))


def claimed_with(row: tuple[Any, ...] | None) -> Claimed | None:
    """The run that came with such a write."""
    return None if row is None else _claimed(row)


def _claimed(row: tuple[Any, ...]) -> Claimed:
    return Claimed(**dict(zip(_FIELDS, row, strict=True)))  # fields stand in the order of `following`


_FIELDS = tuple(Claimed.__dataclass_fields__)

"""The claim: one statement that takes due runs, raises their fences and brings what is needed to go on with them.

A worker that finishes a run takes the next one in the same statement: one commit less for each run. Whose turn it is
stands in `runs.turns`, which plans it may have in `runs.offers`, how places under a cap are given out in `runs.slots`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs import gates, offers, turns
from runs.fenced import Attached
from runs.slots import MOST_AT_ONCE
from runs.states import TRANSITIONS
from runs.transitions import Cursor, sets_for


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A run in hand, with the checkpoint it goes on from."""

    run_id: UUID
    tenant_id: int
    tenant: str
    weight: int
    """How many turns its tenant has where another has one."""
    workflow: str
    plan_id: int
    fence: int
    lineage: int
    head_seq: int
    state_seq: int
    step_id: str
    own_plan: bool
    """Whether it may have a plan of its own."""
    resource: str
    """What the step uses that all tenants share, as it is on record."""
    slot: int | None
    """Its place under its tenant's cap; None where there is no cap."""
    resource_slot: int | None
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
    waits_hash: str
    has_parent: bool
    state_bytes: int


def _ctes(chosen: str, way: str) -> str:
    """The claim as named queries; `following` holds what a holder needs of each run that was `chosen`."""
    return f"""{chosen.replace(turns.ANY_PLAN, offers.WAYS[way])},
claimed AS (
    UPDATE runs_run r SET {sets_for(TRANSITIONS["claim"].target)}, worker_id = %(worker)s, fence = r.fence + 1,
        slot = c.slot, resource_slot = c.resource_slot,
        step_entries = r.step_entries + CASE WHEN r.started_at IS NULL THEN 0 ELSE 1 END,
        resumes = r.resumes + CASE WHEN r.started_at IS NULL THEN 0 ELSE 1 END,
        started_at = coalesce(r.started_at, now())
    FROM chosen c WHERE r.id = c.id
    RETURNING r.*, c.weight, c.due_at AS was_due_at, c.state_since AS was_since
), history AS (
    INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor, reason,
        data)
    SELECT c.id, now(), 'claim', 'queued', 'running', c.step_id, c.step_attempts, c.fence, c.worker_id, '',
        coalesce(held.said, ''),
        jsonb_strip_nulls(jsonb_build_object('resume', c.resumes, 'slot', c.slot, 'resource_slot', c.resource_slot,
            'waited', held.waited, 'gates', held.gates))
    FROM claimed c{gates.held("c")}
), receipts AS (
    INSERT INTO runs_receipt (run_id, number, cause, detail, step_id, fence, worker_id, lost_at, noticed_at, resumed_at,
        reused_effects, repeated_effects, entered_again)
    SELECT c.id, c.resumes, c.wake_cause, c.wake_detail, c.step_id, c.fence, c.worker_id, c.lost_at, c.woken_at,
        clock_timestamp(), 0, 0, c.wake_cause NOT IN ('slice', 'pause', 'isolation', 'resource')
    FROM claimed c WHERE c.resumes > 0
), following AS (
    SELECT c.id, c.tenant_id, t.slug, c.weight, c.workflow, c.plan_id, c.fence, c.lineage, c.head_seq, c.state_seq,
        c.step_id, c.own_plan, c.resource, c.slot, c.resource_slot, c.cursor, c.step_entries, c.step_attempts,
        c.recoveries, c.resumes, c.wake_cause, c.cancel_requested, extract(epoch FROM c.deadline_at - now())::float8,
        c.labels, c.created_at, s.state, h.effects_through, p.version, p.schema_version, p.schema_hash, p.plan_hash,
        p.waits_hash, c.parent_id IS NOT NULL,
        c.state_bytes
    FROM claimed c
    JOIN runs_tenant t ON t.id = c.tenant_id
    JOIN runs_workflow_plan p ON p.id = c.plan_id
    JOIN runs_checkpoint s ON s.run_id = c.id AND s.seq = c.state_seq
    JOIN runs_checkpoint h ON h.run_id = c.id AND h.seq = c.head_seq
    ORDER BY c.priority DESC, c.id
)"""


# A refused write takes no run: whoever lost its fence learns of that first.
_IF_WRITTEN = "EXISTS (SELECT 1 FROM run)"
# Finding nothing, the plain one tells whether the gated one may: an idle worker need not ask both.
_ANSWERS = {
    False: f"SELECT f.*, CASE WHEN f.id IS NULL THEN {turns.ARE_GATES} END FROM (SELECT 1) x"
    " LEFT JOIN following f ON true",
    True: "SELECT f.*, NULL::boolean FROM following f",
}
_CLAIM = {
    (way, is_gated): f"WITH RECURSIVE {_ctes(chosen, way)} {_ANSWERS[is_gated]}"
    for way in offers.WAYS
    for is_gated, chosen in ((False, turns.plain("true")), (True, turns.gated("true")))
}
_CLAIM_WITH_WRITE = {
    (way, is_gated): _ctes(chosen, way)
    for way in offers.WAYS
    for is_gated, chosen in (
        (False, turns.plain(_IF_WRITTEN)),
        (True, turns.gated(_IF_WRITTEN, ending="(SELECT run.id FROM run)")),
    )
}
_CLAIMABLE = turns.CLAIMABLE.replace(turns.ANY_PLAN, offers.TAKEN_BY_SOMEBODY)
FEWEST_TURNS = 4
"""A claim of one run looks at so many tenants: the first one's runs may all be locked."""


@dataclass(frozen=True, kw_only=True)
class Taker:
    """Who claims."""

    worker_id: UUID
    plans: tuple[int, ...]
    """Ids of the plans it can run: it takes runs of these."""
    orphans: tuple[int, ...] = ()
    """Ids of older plans whose runs it takes over, unless they are pinned or a living worker has the plan."""
    lane: int | None = None
    """The one plan of these whose runs it looks for now; None for all."""
    isolated: bool = False
    """Whether this worker takes the runs that asked for a process of their own; others take the rest."""
    after_tenant: int = 0
    """The tenant served last: the next one's turn comes first."""
    gated: bool = True
    """Whether to keep to quotas. Without, nothing is taken while there are any: it costs half, and is tried first."""

    @property
    def statement(self) -> tuple[str, bool]:
        """Which of the statements it claims with."""
        if self.lane is not None:
            return "orphaned_lane" if self.lane in self.orphans else "lane", self.gated
        return "orphans" if self.orphans else "exact", self.gated

    def params(self, limit: int) -> dict[str, Any]:
        return {
            "worker": self.worker_id,
            "plans": list(self.plans),
            "orphans": list(self.orphans),
            "lane": self.lane,
            "isolated": self.isolated,
            "after": self.after_tenant,
            "limit": limit,
            "turns": max(min(limit, MOST_AT_ONCE), FEWEST_TURNS),
        }


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a claim came to."""

    runs: list[Claimed]
    gates: bool
    """Whether nothing was taken and a claim that keeps to quotas may still find something."""


def take(cursor: Cursor, taker: Taker, *, limit: int = 1) -> Taken:
    """Take up to `limit` due runs, the most urgent of each tenant in turn. None when nothing is claimable.

    Fewer than `limit` may mean that a tenant had less than its share: ask again until nothing comes.
    """
    cursor.execute(_CLAIM[taker.statement], taker.params(limit))
    rows = cursor.fetchall()
    return Taken(
        runs=[_claimed(row[:-1]) for row in rows if row[0] is not None], gates=any(bool(row[-1]) for row in rows)
    )


def claim(cursor: Cursor, taker: Taker, *, limit: int = 1) -> list[Claimed]:
    """The runs that `take` takes."""
    return take(cursor, taker, limit=limit).runs


def claimable(cursor: Cursor, *, isolated: bool, most: int) -> int:
    """How many due runs could be taken now, up to `most`: not what waits for its cap, a switch or a worker
    that has its plan."""
    cursor.execute(
        turns.CLAIMABLE.replace(turns.ANY_PLAN, offers.TAKEN_BY_SOMEBODY),
        {"isolated": isolated, "after": 0, "turns": most},
    )
    found: int = cursor.fetchone()[0]
    return min(found, most)


def with_next(taker: Taker) -> Attached:
    """The claim of one run, to be attached to the write that ends another."""
    return Attached(ctes=_CLAIM_WITH_WRITE[taker.statement], answer="following", params=taker.params(1))


def claimed_with(row: tuple[Any, ...] | None) -> Claimed | None:
    """The run that came with such a write."""
    return None if row is None else _claimed(row)


def _claimed(row: tuple[Any, ...]) -> Claimed:
    return Claimed(**dict(zip(_FIELDS, row, strict=True)))  # fields stand in the order of `following`


_FIELDS = tuple(Claimed.__dataclass_fields__)

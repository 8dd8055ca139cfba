"""Reading the queues of legacy systems, as members of some tenants see them: calls of others are only counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

COUNT_CAP = 1000
MOST_SHOWN = 200
MOST_DOUBTS = 10_000
"""Open ones of each tenant that are looked at."""

# Open doubts are few among all calls: they lead to theirs one by one, and never the other way round.
OPEN_DOUBTS = """
SELECT d.id, d.since, x.system FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT o.id, o.since, o.effect_id FROM runs_doubt o WHERE o.tenant_id = t.id AND o.settled_at IS NULL
    ORDER BY o.since, o.id LIMIT %(most_doubts)s) d
CROSS JOIN LATERAL (SELECT e.system FROM runs_effect e WHERE e.id = d.effect_id LIMIT 1) x"""
_SYSTEMS = f"""
WITH doubts AS MATERIALIZED (SELECT o.system, count(*) AS number FROM ({OPEN_DOUBTS}) o GROUP BY o.system)
SELECT s.name, s.paused, s.paused_by, s.paused_reason, s.paused_at,
    (SELECT count(*) FROM (SELECT 1 FROM runs_effect o WHERE o.system = s.name AND o.state = 'queued'
        AND o.safety = 'legacy' LIMIT %(cap)s) x),
    (SELECT count(*) FROM (SELECT 1 FROM runs_effect o WHERE o.system = s.name AND o.state = 'queued'
        AND o.safety = 'legacy' AND o.tenant_id = ANY(%(tenants)s) LIMIT %(cap)s) x),
    (SELECT o.intended_at FROM runs_effect o WHERE o.system = s.name AND o.state = 'queued' AND o.safety = 'legacy'
        ORDER BY o.queue_order LIMIT 1),
    h.id, h.run_id, h.tool, h.resource, h.state, h.tenant_id = ANY(%(tenants)s), h.intended_at,
    coalesce((SELECT least(d.number, %(cap)s) FROM doubts d WHERE d.system = s.name), 0)
FROM runs_system s LEFT JOIN runs_effect h ON h.system = s.name AND h.holds_system
WHERE EXISTS (SELECT 1 FROM runs_effect e WHERE e.system = s.name AND e.safety = 'legacy'
    AND e.tenant_id = ANY(%(tenants)s))
ORDER BY s.name"""
_QUEUE = """
SELECT o.id, o.run_id, o.tool, o.resource, o.intended_at, r.workflow, r.state, r.paused, r.paused_by, t.slug, o.place
FROM (
    SELECT e.*, row_number() OVER (ORDER BY e.queue_order) AS place
    FROM runs_effect e WHERE e.system = %(system)s AND e.state = 'queued' AND e.safety = 'legacy'
    ORDER BY e.queue_order LIMIT 10000
) o JOIN runs_run r ON r.id = o.run_id JOIN runs_tenant t ON t.id = o.tenant_id
WHERE o.tenant_id = ANY(%(tenants)s) ORDER BY o.queue_order LIMIT %(most)s"""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The call that has a system to itself."""

    effect_id: int
    run_id: UUID
    tool: str
    resource: str
    state: str
    """intended: on the wire. in_doubt: nobody knows what became of it."""
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A legacy system as members of some tenants see it."""

    name: str
    paused: bool
    paused_by: str
    paused_reason: str
    paused_at: datetime | None
    queued: int
    queued_here: int
    oldest_at: datetime | None
    held: str
    """intended, in_doubt or empty: what the call that has it to itself is."""
    holder: Holder | None
    """That call, if it is of one of these tenants."""
    in_doubt: int

    @property
    def on_the_wire(self) -> bool:
        return self.held == "intended"

    @property
    def queued_elsewhere(self) -> int:
        return self.queued - self.queued_here


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A call that waits for its turn."""

    effect_id: int
    run_id: UUID
    tool: str
    resource: str
    queued_at: datetime
    workflow: str
    run_state: str
    run_paused: bool
    run_paused_by: str
    tenant: str
    ahead: int
    """How many calls, of whichever tenant, have places before it."""


def systems(tenants: Sequence[int]) -> list[Seen]:
    """Every system that these tenants ever had a call queued for, by name."""
    with connection.cursor() as cursor:
        cursor.execute(_SYSTEMS, {"tenants": list(tenants), "cap": COUNT_CAP, "most_doubts": MOST_DOUBTS})
        rows = cursor.fetchall()
    return [_seen(row) for row in rows]


def _seen(row: tuple[object, ...]) -> Seen:
    *facts, effect_id, run_id, tool, resource, state, ours, since, in_doubt = row
    names = ("name", "paused", "paused_by", "paused_reason", "paused_at", "queued", "queued_here", "oldest_at")
    holder = None
    if effect_id is not None and ours:
        values = {"effect_id": effect_id, "run_id": run_id, "tool": tool, "resource": resource, "state": state}
        holder = Holder(**values, since=since)  # type: ignore[arg-type]  # a row is what its query says
    return Seen(**dict(zip(names, facts, strict=True)), held=state or "", holder=holder, in_doubt=in_doubt)  # type: ignore[arg-type]


def queue(name: str, tenants: Sequence[int]) -> list[Queued]:
    """The calls of these tenants that wait for their turn at a system, in their order, up to a limit."""
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE, {"system": name, "tenants": list(tenants), "most": MOST_SHOWN})
        rows = cursor.fetchall()
    names = ("effect_id", "run_id", "tool", "resource", "queued_at", "workflow", "run_state", "run_paused")
    return [
        Queued(**dict(zip(names, row[:8], strict=True)), run_paused_by=row[8], tenant=row[9], ahead=row[10] - 1)
        for row in rows
    ]

"""What the Systems pages show beside the queues: open doubts and how the newest calls went. Bounded reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from durableops.access import VERBS
from durableops.console.access import WHO, Access
from durableops.engine.system_view import MOST_DOUBTS, OPEN_DOUBTS, Queued, Seen
from runs.models import Doubt, IdempotencyRecord, Tenant

NEWEST_CALLS = 1000
"""Of each tenant, among which latencies and timeouts are counted."""
DOUBTS_SHOWN = 20

# A call that was in doubt took as long as people needed: its time says nothing of the system.
_CALLS = f"""
SELECT x.tool, count(*), count(*) FILTER (WHERE x.state = 'refused'),
    count(*) FILTER (WHERE x.doubts > 0), count(*) FILTER (WHERE x.timeouts > 0),
    percentile_cont(0.5) WITHIN GROUP (ORDER BY x.seconds), percentile_cont(0.95) WITHIN GROUP (ORDER BY x.seconds),
    max(x.seconds), max(x.intended_at)
FROM (
    SELECT n.tool, n.state, n.intended_at, d.doubts, d.timeouts,
        CASE WHEN d.doubts = 0 AND n.state IN ('succeeded', 'refused')
            THEN greatest(0, extract(epoch FROM n.completed_at - n.intended_at))::float8 END AS seconds
    FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
        SELECT e.id, e.tool, e.state, e.intended_at, e.completed_at FROM runs_effect e
        WHERE e.system = %(system)s AND e.safety = 'legacy' AND e.tenant_id = t.id
        ORDER BY e.id DESC LIMIT {NEWEST_CALLS}) n
    CROSS JOIN LATERAL (
        SELECT count(*) AS doubts, count(*) FILTER (WHERE d.cause = 'call_timeout') AS timeouts
        FROM runs_doubt d WHERE d.effect_id = n.id) d
    WHERE n.state NOT IN ('queued', 'withdrawn')
) x GROUP BY x.tool ORDER BY x.tool"""


_DOUBTS = f"SELECT o.id FROM ({OPEN_DOUBTS}) o WHERE o.system = %(system)s ORDER BY o.since, o.id LIMIT %(most)s"


@dataclass(frozen=True, kw_only=True)
class Calls:
    """How the newest calls of one tool went."""

    tool: str
    sent: int
    refused: int
    doubted: int
    timed_out: int
    p50: float | None
    p95: float | None
    slowest: float | None
    last_at: datetime


@dataclass(frozen=True, kw_only=True)
class Place:
    """A call that waits, with its place among those of its tenant."""

    call: Queued
    number: int
    of: int
    why_not: str
    """Why this person may not move it; empty when they may."""


def calls(name: str, tenants: Sequence[int]) -> list[Calls]:
    """Latency and timeouts of each tool's newest calls to a system."""
    with connection.cursor() as cursor:
        cursor.execute(_CALLS, {"system": name, "tenants": list(tenants)})
        return [Calls(**dict(zip(Calls.__dataclass_fields__, row, strict=True))) for row in cursor.fetchall()]


def doubts(name: str, tenants: Sequence[int]) -> list[Doubt]:
    """The oldest open doubts about calls to a system."""
    params: dict[str, Any] = {
        "tenants": list(tenants), "most_doubts": MOST_DOUBTS, "system": name, "most": DOUBTS_SHOWN,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_DOUBTS, params)
        ids = [row[0] for row in cursor.fetchall()]
    known = Doubt.objects.select_related("effect", "run", "tenant").defer("effect__result").in_bulk(ids)
    return [known[pk] for pk in ids if pk in known]


def places(queue: Sequence[Queued], access: Access) -> list[Place]:
    """Each call with its place among its tenant's, and whether this person may give it another."""
    tenants = {tenant.slug: tenant for tenant in access.tenants}
    seen: dict[str, int] = {}
    totals: dict[str, int] = {}
    for call in queue:
        totals[call.tenant] = totals.get(call.tenant, 0) + 1
    found = []
    for call in queue:
        seen[call.tenant] = seen.get(call.tenant, 0) + 1
        lacks = "" if access.may_verb("move_call", tenants[call.tenant].pk) else f"needs {WHO[VERBS['move_call']]}"
        found.append(Place(call=call, number=seen[call.tenant], of=totals[call.tenant], why_not=lacks))
    return found


def whose(name: str, verb: str, access: Access) -> Tenant | None:
    """The tenant in whose name this person pauses or resumes a system: one that used it and lets them."""
    allowed = [tenant for tenant in access.tenants if access.may_verb(verb, tenant.pk)]
    used = IdempotencyRecord.objects.filter(system=name, safety="legacy")
    return next((tenant for tenant in allowed if used.filter(tenant=tenant).exists()), None)


def stands(one: Seen) -> str:
    """How a system is, in a word: `paused`, `in_doubt`, `on_the_wire`, `waits` or `free`."""
    if one.paused:
        return "paused"
    if one.held == "in_doubt":
        return "in_doubt"
    if one.on_the_wire:
        return "on_the_wire"
    return "waits" if one.queued else "free"

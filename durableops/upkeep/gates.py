"""What holds due runs back just now, looked at each second while there are any: caps, switches, missing workers.

What was seen is kept as stretches of time (`runs_gate`), from which a claim tells a run that waited what it waited for.
"""

from __future__ import annotations

from durableops.engine.database import Database
from runs.gates import OPEN_SECONDS
from runs.offers import ASKED_FOR, TAKEN_BY_SOMEBODY, offered, plans_where
from runs.transitions import Cursor

LOOK_SECONDS = 1.0
MOST = 1000
"""Runs before a gate are counted up to so many."""
SEEN = 10_000
"""So many due runs are looked at where no index tells those that a switch concerns."""
KEPT_DAYS = 7
LOCK = (3341, 2)
"""Advisory lock: two who look at once would write one stretch twice."""

_DUE = "r.state = 'queued' AND NOT r.paused AND NOT r.deferred AND r.due_at <= now()"


def _count(only: str, *, of: str = "runs_run r") -> str:
    return f"(SELECT count(*) FROM (SELECT 1 FROM {of} WHERE {_DUE} AND {only} LIMIT {MOST}) x)"


def _full(running: str) -> str:
    """Whether as many run as the cap of the policy `p` allows."""
    return f"""p.running_cap <= (SELECT count(*) FROM (
        SELECT 1 FROM runs_run h WHERE h.state = 'running' AND {running} LIMIT p.running_cap) y)"""


_LIVING = "EXISTS (SELECT 1 FROM runs_worker w WHERE w.ended_at IS NULL AND w.kind = 'worker')"
_LOOK = f"""
WITH RECURSIVE {plans_where(ASKED_FOR, name="needed")}, closed AS MATERIALIZED (
    SELECT * FROM (
        SELECT 'quota.tenant' AS gate, 'tenant:' || p.tenant_id AS subject, p.tenant_id,
            {_count("r.tenant_id = p.tenant_id")} AS held
        FROM runs_quota_policy p WHERE p.tenant_id IS NOT NULL AND {_full("h.tenant_id = p.tenant_id")}
        UNION ALL
        SELECT 'quota.resource', 'resource:' || p.resource, NULL::bigint,
            {_count("r.isolated = ANY(ARRAY[false, true]) AND r.resource = p.resource")}
        FROM runs_quota_policy p WHERE p.tenant_id IS NULL AND {_full("h.resource = p.resource")}
        UNION ALL
        SELECT 'switch.' || s.scope, CASE s.scope WHEN 'all' THEN 'all' WHEN 'tenant' THEN 'tenant:' || s.tenant_id
            ELSE 'workflow:' || coalesce(s.tenant_id::text, '') || ':' || s.workflow END, s.tenant_id,
            CASE WHEN s.scope = 'tenant' THEN {_count("r.tenant_id = s.tenant_id")} ELSE (
                SELECT count(*) FROM (SELECT r.tenant_id, r.workflow FROM runs_run r WHERE {_DUE} LIMIT {SEEN}) r
                WHERE s.scope = 'all' OR (r.workflow = s.workflow AND coalesce(s.tenant_id, r.tenant_id) = r.tenant_id)
            ) END
        FROM runs_pause_switch s
        UNION ALL
        SELECT 'workers.none', 'all', NULL, {_count("true")} WHERE NOT {_LIVING}
        UNION ALL
        SELECT 'workers.version', 'plan:' || n.plan_id, NULL,
            {_count(f"r.plan_id = n.plan_id AND NOT {TAKEN_BY_SOMEBODY}")}
        FROM needed n WHERE n.plan_id IS NOT NULL AND {_LIVING} AND NOT {offered("n.plan_id")}
    ) x WHERE x.held > 0
), still AS (
    UPDATE runs_gate g SET seen_at = greatest(g.seen_at, now()), held = c.held FROM closed c
    WHERE g.gate = c.gate AND g.subject = c.subject AND g.seen_at > now() - interval '{OPEN_SECONDS} s'
    RETURNING g.gate, g.subject
)
INSERT INTO runs_gate (gate, subject, tenant_id, since, seen_at, held)
SELECT c.gate, c.subject, c.tenant_id, now(), now(), c.held FROM closed c
WHERE NOT EXISTS (SELECT 1 FROM still s WHERE s.gate = c.gate AND s.subject = c.subject)
RETURNING id"""
_FORGET = f"DELETE FROM runs_gate WHERE seen_at < now() - interval '{KEPT_DAYS} days'"


def look(database: Database) -> int:
    """Note which gates are closed before due runs. Returns how many were not a moment ago. Raises ConnectionLost."""

    def work(cursor: Cursor) -> int:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", LOCK)
        cursor.execute(_LOOK)
        new = len(cursor.fetchall())
        if new:
            cursor.execute(_FORGET)
        return new

    return database.transacting(work)

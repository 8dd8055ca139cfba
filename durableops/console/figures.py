"""The numbers of the Overview, each over a stated time, each bounded. The lists behind them are `listing`'s."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from durableops.console.filters import INTERRUPTED
from durableops.engine import gates
from durableops.engine.gates import Lately

HOURS = 24
MOST = 20_000
"""Rows a figure looks at in each tenant at most; a figure that reached it says so."""

NEWEST_WORKERS = 2000
"""Starts of workers that are looked at."""

_BY_HOUR = """
SELECT floor(extract(epoch FROM now() - x.created_at) / 3600)::int AS hours_ago, count(*),
    count(*) FILTER (WHERE x.state = 'failed' OR x.state = 'timed_out')
FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT r.created_at, r.state FROM runs_run r
    WHERE r.tenant_id = t.id AND r.created_at > now() - %(hours)s * interval '1 hour'
    ORDER BY r.created_at DESC, r.id DESC LIMIT %(most)s
) x GROUP BY 1"""

_RECOVERY = """
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY s), percentile_cont(0.95) WITHIN GROUP (ORDER BY s),
    max(s), coalesce(sum(reused), 0), coalesce(sum(repeated), 0), count(DISTINCT run_id)
FROM (
    SELECT c.run_id, c.reused_effects AS reused, c.repeated_effects AS repeated,
        greatest(0, extract(epoch FROM c.resumed_at - c.lost_at))::float8 AS s
    FROM unnest(%(causes)s::text[]) k(cause)
    JOIN LATERAL (
        SELECT * FROM runs_receipt d WHERE d.cause = k.cause AND d.resumed_at > now() - %(hours)s * interval '1 hour'
        ORDER BY d.resumed_at DESC LIMIT %(most)s
    ) c ON true
    JOIN runs_run r ON r.id = c.run_id AND r.tenant_id = ANY(%(tenants)s)
) x"""

_WAITING = """
SELECT kind, name, count(*), min(opened_at) FROM (
    SELECT w.kind, w.name, w.opened_at FROM runs_wait w
    WHERE w.state = 'open' AND w.kind = ANY(%(kinds)s) AND w.tenant_id = ANY(%(tenants)s) LIMIT %(most)s
) x GROUP BY kind, name ORDER BY count(*) DESC, kind, name LIMIT 12"""

_EXPIRING = """
SELECT w.run_id, w.name, w.expires_at, r.workflow FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
WHERE w.state = 'open' AND w.kind = 'approval' AND w.tenant_id = ANY(%(tenants)s)
ORDER BY w.expires_at NULLS LAST, w.id LIMIT 5"""


_WORKERS = f"""
SELECT count(*) FILTER (WHERE ended_at IS NULL),
    count(*) FILTER (WHERE ended_at > now() - %(hours)s * interval '1 hour' AND ended_why NOT LIKE 'stopped%%'),
    (SELECT jsonb_agg(g) FROM ({gates.LATELY}) g)
FROM (SELECT ended_at, ended_why FROM runs_worker ORDER BY number DESC LIMIT {NEWEST_WORKERS}) w"""


@dataclass(frozen=True, kw_only=True)
class Hour:
    """Runs started in one hour."""

    ago: int
    started: int
    failed: int
    x: int
    y: float
    height: float
    bad_y: float
    bad_height: float


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How quickly interrupted runs were in hand again, over the last day."""

    resumes: int
    p50: float | None
    p95: float | None
    slowest: float | None
    reused: int
    repeated: int
    runs: int


def by_hour(tenants: list[int]) -> list[Hour]:
    """Runs started in each of the last 24 hours, as bars."""
    rows = {ago: (n, bad) for ago, n, bad in _fetch(_BY_HOUR, tenants)}
    top = max([n for n, _ in rows.values()], default=0) or 1
    found = []
    for ago in range(HOURS - 1, -1, -1):
        n, bad = rows.get(ago, (0, 0))
        height, bad_height = round(88 * n / top, 1), round(88 * bad / top, 1)
        found.append(Hour(ago=ago, started=n, failed=bad, x=(HOURS - 1 - ago) * 20 + 2, y=92 - height, height=height,
                          bad_y=92 - bad_height, bad_height=bad_height))  # fmt: skip
    return found


def recovery(tenants: list[int]) -> Recovery:
    """The last day's interruptions."""
    n, p50, p95, slowest, reused, repeated, runs = _fetch(_RECOVERY, tenants)[0]
    return Recovery(resumes=n, p50=p50, p95=p95, slowest=slowest, reused=reused, repeated=repeated, runs=runs)


def workers(tenants: list[int]) -> tuple[int, int, list[Lately]]:
    """How many are alive, how many of the last day ended without being asked to, and what held runs back meanwhile."""
    living, lost, held = _fetch(_WORKERS, tenants)[0]
    return living, lost, gates.read_lately(held)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    kind: str
    name: str
    runs: int
    oldest: datetime


def waiting(tenants: list[int]) -> list[Waiting]:
    """What open runs wait for, most first."""
    return [Waiting(kind=k, name=n, runs=c, oldest=o) for k, n, c, o in _fetch(_WAITING, tenants)]


@dataclass(frozen=True, kw_only=True)
class Due:
    run_id: str
    name: str
    expires_at: datetime | None
    workflow: str
    soon: bool


def approvals_due(tenants: list[int], *, now: datetime) -> list[Due]:
    """The approvals that expire first."""
    soon = now + timedelta(hours=HOURS)
    return [
        Due(run_id=run, name=name, expires_at=at, workflow=workflow, soon=at is not None and at < soon)
        for run, name, at, workflow in _fetch(_EXPIRING, tenants)
    ]


def _fetch(sql: str, tenants: list[int]) -> list[tuple]:  # type: ignore[type-arg]
    kinds = ["event", "approval", "file", "time", "poll", "children", "turn"]
    with connection.cursor() as cursor:
        cursor.execute(
            sql,
            {
                "tenants": tenants,
                "hours": HOURS,
                "most": MOST,
                "causes": list(INTERRUPTED),
                "kinds": kinds,
            },
        )
        rows: list[tuple] = cursor.fetchall()  # type: ignore[type-arg]
    return rows

"""Lists of effects whose cost does not grow with the table: index ranges, each looked at up to a window.

A page merges ranges that an index has in order (a tenant's tool, a system, what came to nothing), newest first. When a
rare condition finds less than a page in the windows, the page ends where all of them have been looked at, and the next
one goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from durableops.console.effect_filter import EffectFilter
from runs.models import IdempotencyRecord, RunEvent, Tenant

PER_PAGE = 50
WINDOW = 1_000
"""Effects that are looked at in each range where a condition has no index."""
MOST_DOUBTS = 10_000
"""Open ones of each tenant that are looked at."""
MOST_TOOLS = 200
"""Of each tenant."""
NEWEST_CONFLICTS = 500
"""Of the installation, among which those of one's tenants are found."""
CONFLICTS_SHOWN = 20
NOTHING_CAME = ("given_up", "refused", "withdrawn")

# One descent of the index for each tool of a tenant.
_TOOLS = """
WITH RECURSIVE walk AS (
    SELECT t.id AS tenant_id, f.tool, 1 AS number FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
        SELECT e.tool FROM runs_effect e WHERE e.tenant_id = t.id ORDER BY e.tool LIMIT 1) f
    UNION ALL
    SELECT w.tenant_id, f.tool, w.number + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT e.tool FROM runs_effect e WHERE e.tenant_id = w.tenant_id AND e.tool > w.tool ORDER BY e.tool LIMIT 1) f
    WHERE w.number < %(most_tools)s
)"""
_FIXED = "WITH walk AS (SELECT t.id AS tenant_id, %(tool)s::text AS tool FROM unnest(%(tenants)s::int[]) t(id))"
# Below the greatest of the ends of windows that were full, some range has not been looked at.
_PAGE = """
, looked AS MATERIALIZED (
    SELECT g.tenant_id, g.tool AS range, x.* FROM walk g CROSS JOIN LATERAL (
        SELECT e.id, e.tool, e.system, e.state, e.key, e.request_hash, e.resource FROM runs_effect e
        WHERE {bounds} AND e.id < %(before)s ORDER BY e.id DESC LIMIT {window}) x
), reached AS (
    SELECT coalesce(max(x.last), 0) AS id FROM (
        SELECT min(l.id) AS last FROM looked l GROUP BY l.tenant_id, l.range HAVING count(*) >= {window}) x
)
SELECT f.id, r.id FROM reached r LEFT JOIN LATERAL (
    SELECT l.id FROM looked l WHERE l.id >= r.id {where} ORDER BY l.id DESC LIMIT %(limit)s) f ON true"""
_DOUBTED = """
SELECT e.id, 0 FROM (
    SELECT d.effect_id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
        SELECT x.effect_id FROM runs_doubt x WHERE x.tenant_id = t.id AND x.settled_at IS NULL
        ORDER BY x.since DESC, x.id DESC LIMIT {window}) d
) n JOIN runs_effect e ON e.id = n.effect_id
WHERE e.id < %(before)s {where} ORDER BY e.id DESC LIMIT %(limit)s"""
_BY_KEY = """
SELECT e.id, 0 FROM runs_effect e WHERE e.key = %(key)s AND e.tenant_id = ANY(%(tenants)s::int[])
AND e.id < %(before)s {where} ORDER BY e.id DESC LIMIT %(limit)s"""
_CONFLICTS = """
SELECT n.id FROM (
    SELECT v.id, v.run_id, v.data FROM runs_event v WHERE v.event = 'effect_conflict' ORDER BY v.id DESC LIMIT {newest}
) n JOIN runs_run r ON r.id = n.run_id
WHERE r.tenant_id = ANY(%(tenants)s::int[]) AND (%(tool)s = '' OR n.data ->> 'tool' = %(tool)s)
ORDER BY n.id DESC LIMIT {most}"""


@dataclass(frozen=True, kw_only=True)
class EffectPage:
    """Some effects, newest first."""

    rows: Sequence[IdempotencyRecord]
    following: int | None = None
    """Where the next page begins; None when there is none."""
    ran_out: bool = False
    """Whether it is short of a page because the windows ended: the next one looks further."""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A call that asked its slot for another request than the one on record; nothing was sent."""

    event: RunEvent
    effect: IdempotencyRecord | None
    """What the slot holds."""


def page(asked: EffectFilter, visible: Sequence[Tenant]) -> EffectPage:
    """One page."""
    tenants = tenants_of(asked, visible)
    if not tenants:
        return EffectPage(rows=[])
    sql, params = statement(asked, tenants)
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found = cursor.fetchall()
    ids = [row[0] for row in found if row[0] is not None]
    reached = found[0][1] if found else 0
    more = len(ids) > PER_PAGE
    shown = ids[:PER_PAGE]
    known = IdempotencyRecord.objects.select_related("run", "tenant").defer("result", "slot").in_bulk(shown)
    return EffectPage(
        rows=[known[pk] for pk in shown if pk in known], following=shown[-1] if more else reached or None,
        ran_out=not more and bool(reached),
    )  # fmt: skip


def statement(asked: EffectFilter, tenants: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """The SELECT of a page's ids, each with the number down to which everything was looked at, and its parameters."""
    params: dict[str, Any] = {
        "tenants": list(tenants), "before": 2**63 - 1 if asked.before is None else asked.before, "limit": PER_PAGE + 1,
        "most_tools": MOST_TOOLS, "tool": asked.tool, "system": asked.system, "state": asked.state, "key": asked.key,
        "request": asked.request, "resource": asked.resource, "nothing": list(NOTHING_CAME),
    }  # fmt: skip
    if asked.key:
        return _BY_KEY.format(where=_where(asked, "e", done="key")), params
    if asked.state == "in_doubt":
        return _DOUBTED.format(where=_where(asked, "e"), window=MOST_DOUBTS), params
    head, bounds, done = _TOOLS, "e.tenant_id = g.tenant_id AND e.tool = g.tool", ""
    if asked.system:
        head, done = _FIXED, "system"
        bounds = "e.tenant_id = g.tenant_id AND e.system = %(system)s AND e.safety = 'legacy'"
    elif asked.tool:
        head, done = _FIXED, "tool"
    elif asked.state in NOTHING_CAME:
        head, bounds = _FIXED, f"e.tenant_id = g.tenant_id AND e.state IN ({_quoted(NOTHING_CAME)})"
    where = _where(asked, "l", done=done)
    window = WINDOW if where else PER_PAGE + 1
    return head + _PAGE.format(bounds=bounds, window=window, where=where), params


def _where(asked: EffectFilter, row: str, *, done: str = "") -> str:
    """The conditions but the one that the range has answered, on a row of this name."""
    columns = {"tool": "tool", "system": "system", "state": "state", "key": "key", "request": "request_hash",
               "resource": "resource"}  # fmt: skip
    wanted = [name for name, _ in asked.conditions if name in columns and name != done]
    return "".join(f" AND {row}.{columns[name]} = %({name})s" for name in wanted)


def _quoted(values: Sequence[str]) -> str:
    # The planner takes the index for these states only if it reads them in the statement.
    return ", ".join(f"'{value}'" for value in values)


def tenants_of(asked: EffectFilter, visible: Sequence[Tenant]) -> list[int]:
    """The tenants to look in: those the person sees, narrowed by the filter."""
    return [tenant.pk for tenant in visible if asked.tenant in ("", tenant.slug)]


def tools(tenants: Sequence[int]) -> list[str]:
    """The tools whose calls these tenants have on record."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"{_TOOLS} SELECT DISTINCT tool FROM walk ORDER BY tool LIMIT %(most_tools)s",
            {"tenants": list(tenants), "most_tools": MOST_TOOLS},
        )
        return [row[0] for row in cursor.fetchall()]


def conflicts(asked: EffectFilter, visible: Sequence[Tenant]) -> list[Conflict]:
    """The newest conflicts, each with what its slot holds."""
    params: dict[str, Any] = {"tenants": tenants_of(asked, visible), "tool": asked.tool}
    with connection.cursor() as cursor:
        cursor.execute(_CONFLICTS.format(newest=NEWEST_CONFLICTS, most=CONFLICTS_SHOWN), params)
        ids = [row[0] for row in cursor.fetchall()]
    if not ids:
        return []
    events = list(RunEvent.objects.select_related("run__tenant").filter(pk__in=ids).order_by("-id"))
    held = [event.data.get("effect") for event in events]
    rows = IdempotencyRecord.objects.filter(pk__in=[pk for pk in held if isinstance(pk, int)])
    effects = rows.defer("result", "slot").in_bulk()
    return [Conflict(event=event, effect=effects.get(pk)) for event, pk in zip(events, held, strict=True)]

"""Lists and counts of runs whose cost does not grow with the table: one index range per tenant and state, bounded.

A page walks the index from its cursor and looks at no more than `WINDOW` rows per range; when a rare condition finds
fewer than a page in there, the page says how far it looked and offers to look further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from durableops.console.filters import VIEWS, RunFilter, Scan, tenants_of
from durableops.console.plans import own_steps, plan_steps
from runs.models import Run, Tenant, Wait
from runs.states import State

PER_PAGE = 50
WINDOW = 10_000
COUNT_CAP = 1_000


@dataclass(kw_only=True)
class RunRow:
    """A run as the list shows it."""

    run: Run
    steps: list[tuple[str, str]]
    """Each step of the plan with the state it is drawn in."""
    number: int
    waits_for: str
    waits_kind: str
    due_at: datetime | None
    clock_at: datetime | None
    unreadable: bool


@dataclass(frozen=True, kw_only=True)
class RunPage:
    rows: list[RunRow]
    newer: str = ""
    """Query string of the page before this one; empty on the first."""
    older: str = ""
    looked_at: int = 0
    """How many runs per tenant a filtered page looked at before it stopped; 0 when it did not have to stop."""


def _ranges(scan: Scan, *, order: str, beyond: str, limit: int, select: str, window: int = 0) -> str:
    """The bounded walk: every range in its index's order, then the conditions on what it brought."""
    bounds = ["r.tenant_id = t.id"]
    states = ""
    if scan.states:
        states = "CROSS JOIN unnest(%(states)s::text[]) s(state)"
        bounds.append("r.state = s.state")
    if scan.among:
        bounds.append(scan.among)
    if scan.since:
        bounds.append("r.created_at >= %(since)s")
    if beyond:
        bounds.append(f"(r.created_at, r.id) {beyond} (%(cursor_at)s, %(cursor_id)s)")
    window = (window or WINDOW) if scan.where else limit
    where = f"WHERE {' AND '.join(scan.where)}" if scan.where else ""
    return f"""
        SELECT {select} FROM unnest(%(tenants)s::int[]) t(id) {states} CROSS JOIN LATERAL (
            SELECT w.id, w.created_at FROM (
                SELECT * FROM runs_run r WHERE {" AND ".join(bounds)}
                ORDER BY r.created_at {order}, r.id {order} LIMIT {window}
            ) w {where} ORDER BY w.created_at {order}, w.id {order} LIMIT {limit}
        ) x"""


def everything(asked: RunFilter, tenant: Tenant, *, most: int, window: int) -> tuple[str, dict[str, Any]]:
    """A SELECT of the ids of all runs that match in one tenant, and its parameters; so many are looked at per range.

    The same walk as the list and its number.
    """
    scan = asked.first_page().scan()
    if scan.nothing or tenant.pk not in tenants_of(scan, [tenant]):
        return "SELECT r.id, r.created_at FROM runs_run r WHERE false", {}
    sql = _ranges(scan, order="DESC", beyond="", limit=most, select="x.id, x.created_at", window=window)
    return sql, _params(scan, [tenant.pk], None)


def _params(scan: Scan, tenants: Sequence[int], cursor: tuple[datetime, UUID] | None) -> dict[str, Any]:
    return {
        "tenants": list(tenants), "states": list(scan.states), "since": scan.since,
        "cursor_at": cursor[0] if cursor else None, "cursor_id": cursor[1] if cursor else None, **scan.params,
    }  # fmt: skip


def page(asked: RunFilter, visible: list[Tenant]) -> RunPage:
    """One page of runs. Backwards pages are read the other way round and turned."""
    scan = asked.scan()
    tenants = tenants_of(scan, visible)
    if scan.nothing or not tenants:
        return RunPage(rows=[])
    ascending = asked.oldest_first != asked.backwards
    order = "ASC" if ascending else "DESC"
    beyond = (">" if ascending else "<") if asked.cursor else ""
    sql = _ranges(scan, order=order, beyond=beyond, limit=PER_PAGE + 1, select="x.id, x.created_at")
    with connection.cursor() as cursor:
        cursor.execute(
            f"{sql} ORDER BY x.created_at {order}, x.id {order} LIMIT {PER_PAGE + 1}",
            _params(scan, tenants, asked.cursor),
        )
        found = cursor.fetchall()
    return _paged(asked, scan, found)


def _paged(asked: RunFilter, scan: Scan, found: list[tuple[UUID, datetime]]) -> RunPage:
    more, keys = len(found) > PER_PAGE, found[:PER_PAGE]
    if asked.backwards:
        keys = keys[::-1]
    if not keys:
        return RunPage(rows=[], newer=asked.first_page().query if asked.cursor else "",
                       looked_at=WINDOW if scan.where else 0)  # fmt: skip
    has_newer = more if asked.backwards else asked.cursor is not None
    has_older = True if asked.backwards else more
    first, last = (keys[0][1], keys[0][0]), (keys[-1][1], keys[-1][0])
    return RunPage(
        rows=_rows([key[0] for key in keys]),
        newer=asked.at(first, backwards=True).query if has_newer else "",
        older=asked.at(last, backwards=False).query if has_older else "",
        looked_at=WINDOW if scan.where and not more else 0,
    )


def _rows(ids: list[UUID]) -> list[RunRow]:
    """The runs with what they wait for, in the order given; one that was deleted in between is left out."""
    runs = Run.objects.select_related("tenant", "plan").in_bulk(ids)
    waits: dict[UUID, Wait] = {}
    waiting = [run_id for run_id, run in runs.items() if run.state == State.WAITING]
    if waiting:
        for wait in Wait.objects.filter(run_id__in=waiting, state="open").defer("facts", "answer").order_by("id"):
            waits[wait.run_id] = wait
    own = own_steps(runs.values())
    return [row_of(runs[run_id], waits.get(run_id), own.get(run_id)) for run_id in ids if run_id in runs]


def row_of(run: Run, wait: Wait | None, own: list[str] | None = None) -> RunRow:
    """One row; `own` are the steps of a run with a plan of its own.

    A plan nobody can read leaves a mark and the rest of the row.
    """
    plan = run.plan.plan
    found = plan.get("steps") if isinstance(plan, dict) else None
    readable = isinstance(found, list) and all(isinstance(step, dict) and "id" in step for step in found)
    ids = plan_steps(run, own) if readable else []
    at = ids.index(run.step_id) if run.step_id in ids else -1
    return RunRow(
        run=run, steps=[(step, _block(run, n, at)) for n, step in enumerate(ids)], number=at + 1,
        waits_for=wait.name if wait else "", waits_kind=wait.kind if wait else "", due_at=wait.due_at if wait else None,
        clock_at=_next_clock(run, wait), unreadable=not readable or (at < 0 and not run.is_terminal),
    )  # fmt: skip


def _block(run: Run, number: int, at: int) -> str:
    if run.state == State.SUCCEEDED or number < at:
        return "succeeded"
    if number > at or run.state in (State.QUEUED, State.CANCELLED):
        return ""
    return run.state


def _next_clock(run: Run, wait: Wait | None) -> datetime | None:
    """Which clock ends it first: the wait's own or the run's deadline."""
    if run.is_terminal:
        return None
    clocks = [at for at in (wait.expires_at if wait else None, run.deadline_at) if at is not None]
    return min(clocks) if clocks else None


def view_counts(asked: RunFilter, visible: list[Tenant], names: Sequence[str] = ()) -> dict[str, str]:
    """How many runs each system view holds under the present conditions, up to a cap, in one statement.

    The same walk as the list: a number and the page behind it cannot tell two stories. Conditions that no index knows
    are walked for the view that is looked at alone; the others then have no number.
    """
    walked = bool(asked.conditions) and not names
    chosen = [v for name, v in VIEWS.items() if (v is asked.view if walked else not names or name in names)]
    parts: list[str] = []
    params: dict[str, Any] = {}
    for n, view in enumerate(chosen):
        sql, mine = _count(asked.to_view(view), visible)
        # Each view has parameters of its own: the state lists differ.
        for key in sorted(mine, key=len, reverse=True):
            sql = sql.replace(f"%({key})s", f"%(v{n}_{key})s")
            params[f"v{n}_{key}"] = mine[key]
        parts.append(sql)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(parts)}", params)
        row = cursor.fetchone()
    found = {
        view.name: f"{COUNT_CAP:,}+" if number > COUNT_CAP else f"{number:,}"
        for view, number in zip(chosen, row, strict=True)
    }
    return dict.fromkeys(VIEWS, "") | found


def _count(asked: RunFilter, visible: list[Tenant]) -> tuple[str, dict[str, Any]]:
    scan = asked.scan()
    tenants = tenants_of(scan, visible)
    if scan.nothing or not tenants:
        return "0", {}
    sql = _ranges(scan, order="DESC", beyond="", limit=COUNT_CAP + 1, select="1")
    return f"(SELECT count(*) FROM ({sql} LIMIT {COUNT_CAP + 1}) c)", _params(scan, tenants, None)

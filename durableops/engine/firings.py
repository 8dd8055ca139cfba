"""Clocks that fired, counted by cause and by whom they waited for. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from durableops.limits.clocks import Cause

MOST = 10_000
"""So many of the newest firings of an installation are looked at."""
MOST_GROUPS = 50

# `data ? 'phase'` is the condition of the index event_clock_fired: only the firings of clocks have one.
_BY_CAUSE = """
SELECT x.cause, x.clock, x.phase, x.whom, count(*), count(DISTINCT x.run_id), max(x.at) FROM (
    SELECT e.run_id, e.at, e.data ->> 'cause' AS cause, e.data ->> 'clock' AS clock, e.data ->> 'phase' AS phase,
        coalesce(e.data ->> 'whom', '') AS whom
    FROM runs_event e WHERE e.data ? 'phase' AND e.at > now() - %(hours)s * interval '1 hour'
    ORDER BY e.at DESC, e.id DESC LIMIT %(most)s
) x JOIN runs_run r ON r.id = x.run_id AND r.tenant_id = ANY(%(tenants)s)
GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT %(groups)s"""


@dataclass(frozen=True, kw_only=True)
class Fired:
    """Firings of one clock for one cause, about one dependency or person."""

    cause: str
    clock: str
    phase: str
    whom: str
    """`tool crm.push`, `event parcel-arrived`, `approval delivery`; "" where nobody was waited for."""
    times: int
    runs: int
    newest_at: datetime

    @property
    def advice(self) -> str:
        """Where to look."""
        return ADVICE[Cause(self.cause)]


ADVICE = {
    Cause.SLOW_DEPENDENCY: "look at that tool and its timeout",
    Cause.UNRESPONSIVE_USER: "nobody who may decide did; look at the Inbox",
    Cause.UNRESPONSIVE_SYSTEM: "what should have come did not",
    Cause.OVERLOAD: "look at quotas, workers and pauses",
    Cause.BUDGET_SPENT: "look at the budget, and at what it was spent for",
    Cause.DESIGN_ERROR: "the limit does not fit the work",
}


def by_cause(tenants: list[int], *, hours: int) -> list[Fired]:
    """What fired within so many hours, most first."""
    params: dict[str, Any] = {"tenants": tenants, "hours": hours, "most": MOST, "groups": MOST_GROUPS}
    with connection.cursor() as cursor:
        cursor.execute(_BY_CAUSE, params)
        names = ("cause", "clock", "phase", "whom", "times", "runs", "newest_at")
        return [Fired(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

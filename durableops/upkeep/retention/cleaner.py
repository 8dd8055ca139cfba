"""One pass of cleaning: steps of bounded transactions, each whole or not at all, over runs in the order they are due.

What may go is decided in the database (runs/retention); here it is asked for, step by step. Whoever dies between two
steps, or in one, leaves nothing half done: what was recorded has gone, and the next pass begins where it was.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import errors

from durableops import failpoints
from durableops.engine.database import Database
from durableops.failpoints import Point
from durableops.upkeep import loose_files

logger = logging.getLogger("durableops.retention")

RUNS = 100
ROWS = 5000
"""What one transaction looks at and removes at most."""
LOCK_TIMEOUT = "-c lock_timeout=2s"
"""Who holds a row of a run for longer than this is left alone, and told of (C116)."""
_FIRST: tuple[Any, Any] = ("-infinity", UUID(int=0))

_STEP = "SELECT runs_retention_step(%s, %s, %s, %s, %s, %s, %s)"
_AUDIT_ENDS = """
SELECT EXISTS (SELECT 1 FROM (SELECT id AS tenant FROM runs_tenant UNION ALL SELECT NULL) t
    CROSS JOIN LATERAL runs_retention_window(t.tenant, '', 'audit') w WHERE w.seconds IS NOT NULL)"""


@dataclass(kw_only=True)
class Cleaned:
    """What a pass came to."""

    runs: int = 0
    """Runs looked at."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    by_class: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    """Runs that somebody else held."""
    busy: bool = False
    """Whether another cleaner was at it."""

    def add(self, step: dict[str, Any]) -> None:
        self.runs += step.get("runs", 0)
        self.rows += step.get("rows", 0)
        self.bytes += step.get("bytes", 0)
        self.by_class.update(step.get("by_class", {}))
        self.skipped += step.get("skipped", [])


type Between = Callable[[], bool]
"""Called between two steps; may pause. False stops the pass."""


class Cleaner:
    """Makes steps on one connection."""

    def __init__(self, database: Database, *, by: str, runs: int = RUNS, rows: int = ROWS) -> None:
        self.database = database
        self.by = by
        self.runs = runs
        self.rows = rows

    def clean(self, as_of: datetime, between: Between = lambda: True) -> Cleaned:
        """Remove everything that may go as of a moment, and the files of it. Raises ConnectionLost."""
        done = Cleaned()
        for new in (True, False):
            if not self._walk_runs(as_of, done, between, new=new):
                return done
        if not self._walk("inbound", "input", as_of, done, between):
            return done
        if self.database.fetch(_AUDIT_ENDS)[0][0] and not self._walk("audit", "audit", as_of, done, between):
            return done
        while files := loose_files.remove_some(self.database):
            done.files += files
            if not between():
                break
        return done

    def _walk_runs(self, as_of: datetime, done: Cleaned, between: Between, *, new: bool) -> bool:
        """Runs that have just finished, or those whose time has come. False when the pass is to end."""
        after, runs = _FIRST, self.runs
        while True:
            failpoints.reach(Point.BEFORE_CLEANING)
            try:
                step = self._step(as_of, new, *after, runs)
            except errors.LockNotAvailable:
                # Somebody holds a row of one of them. Alone, each of the others can be cleaned.
                if runs > 1:
                    runs = 1
                    continue
                step = self._pass_over(as_of, after, new=new)
            failpoints.reach(Point.AFTER_CLEANING)
            if step["busy"]:
                done.busy = True
                return False
            done.add(step)
            if not step["runs"]:
                return True
            if not step.get("again"):
                after, runs = (step["after_at"], step["after_id"]), self.runs
            if not between():
                return False

    def _step(self, as_of: datetime, new: bool, after_at: Any, after_id: Any, runs: int) -> dict[str, Any]:
        row = self.database.fetch(_STEP, [as_of, new, after_at, after_id, runs, self.rows, self.by])[0][0]
        return _parsed(row)

    def _pass_over(self, as_of: datetime, after: tuple[Any, Any], *, new: bool) -> dict[str, Any]:
        """Go on behind the one run that cannot be had."""
        column = "finished_at" if new else "retain_at"
        only = "retain_at IS NULL AND" if new else ""
        rows = self.database.fetch(
            f"SELECT {column}, id FROM runs_run WHERE {only} {column} <= %s AND ({column}, id) > (%s, %s)"
            f" ORDER BY {column}, id LIMIT 1",
            [as_of, *after],
        )
        if not rows:
            return {"busy": False, "runs": 0}
        logger.warning("run %s is held by somebody else and was left for the next pass", rows[0][1])
        return {"busy": False, "runs": 1, "after_at": rows[0][0], "after_id": rows[0][1], "skipped": [str(rows[0][1])]}

    def _walk(self, lane: str, data_class: str, as_of: datetime, done: Cleaned, between: Between) -> bool:
        """What belongs to no run, by primary key. False when the pass is to end."""
        while True:
            step = _parsed(
                self.database.fetch(f"SELECT runs_retention_{lane}(%s, %s, %s)", [as_of, self.rows, self.by])[0][0]
            )
            if step["busy"]:
                return True
            done.rows += step["rows"]
            done.bytes += step["bytes"]
            done.by_class[data_class] += step["rows"]
            if not step["again"]:
                return True
            if not between():
                return False


def _parsed(row: Any) -> dict[str, Any]:
    found: dict[str, Any] = row if isinstance(row, dict) else json.loads(row)
    return found

"""Finishing erasures: once nothing more of what was asked for can go, what went and what stayed is written down."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from uuid import UUID

from durableops.engine.database import Database

BATCH = 500

_OPEN = """
SELECT e.id, e.tenant_id, e.label, e.value, e.requested_at FROM runs_erasure e
WHERE e.finished_at IS NULL ORDER BY e.id"""
# Every run that it concerns and that still has a row: those it named, and those it has emptied already.
_RUNS = """
SELECT r.id FROM runs_run r LEFT JOIN runs_summary s ON s.run_id = r.id
WHERE r.tenant_id = %(tenant)s AND r.id > %(after)s AND r.created_at <= %(asked)s
  AND (s.erasure_id = %(id)s OR (s.erasure_id IS NULL AND (%(label)s = '' OR r.labels ->> %(label)s = %(value)s)))
ORDER BY r.id LIMIT %(batch)s"""
_STAY = """
SELECT v.run_id, v.data_class, v.held FROM runs_retention_verdicts(%s, now()) v WHERE NOT v.cleaned"""
_WENT = """
SELECT data_class, sum(rows)::bigint, sum(bytes)::bigint FROM runs_cleanup WHERE erasure_id = %s GROUP BY 1"""
_FINISH = """
UPDATE runs_erasure SET finished_at = CASE WHEN %(done)s THEN now() END, erased = %(erased)s::jsonb,
    stayed = %(stayed)s::jsonb WHERE id = %(id)s AND finished_at IS NULL"""
ENDS = frozenset({"open", "child"})
"""What goes by itself: the request waits for it."""


def account(database: Database) -> int:
    """Say of each open request what went and what stays; finish those that nothing more can be done for.

    Returns how many were finished.
    """
    finished = 0
    for id_, tenant, label, value, asked in database.fetch(_OPEN):
        reasons, waits = _staying(
            database, {"id": id_, "tenant": tenant, "label": label, "value": value, "asked": asked}
        )
        went = {name: {"rows": rows, "bytes": size} for name, rows, size in database.fetch(_WENT, [id_])}
        database.fetch(
            _FINISH,
            {"id": id_, "done": not waits, "erased": json.dumps(went), "stayed": json.dumps(dict(reasons))},
        )
        finished += not waits
    return finished


def _staying(database: Database, of: dict[str, Any]) -> tuple[Counter[str], bool]:
    """How many runs stay for which reasons, and whether any of it will or may still go soon."""
    reasons: Counter[str] = Counter()
    waits, after = False, UUID(int=0)
    while rows := database.fetch(_RUNS, {**of, "after": after, "batch": BATCH}):
        ids = [row[0] for row in rows]
        after = ids[-1]
        held: dict[UUID, set[str]] = {}
        for run, _name, holders in database.fetch(_STAY, [ids]):
            held.setdefault(run, set()).update(holders)
            waits = waits or not holders
        for holders in held.values():
            own = {why for why in holders if not why.startswith("class:")}
            reasons.update(own)
            waits = waits or bool(own & ENDS)
    return reasons, waits

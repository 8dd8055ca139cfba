"""How much there is of each data class, estimated without reading it all: for people, and for the growth alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from durableops.engine.database import Database
from runs.retention.classes import CLASSES

SAMPLE_PAGES = 200
KEEP_DAYS = 60
ALARM_DAYS = 7
ALARM_SHARE = 0.5
ALARM_BYTES = 100_000_000
"""A class that grew by half within a week, and by this much at least, is growing faster than anybody meant."""

# Tables by their physical size, which includes indexes and what is stored apart; shared out by a sample of rows. Until
# a table is analyzed for the first time, its rows are those that the statistics counted as they came and went.
_TABLES = """
SELECT c.relname, pg_total_relation_size(c.oid),
    CASE WHEN c.reltuples < 0 THEN pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END::bigint, greatest(c.relpages, 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relname = ANY(%s)"""
_CHECKPOINTS = """
SELECT CASE kind WHEN 'start' THEN 'input' WHEN 'finish' THEN 'deliverable' ELSE 'checkpoint' END, count(*),
    coalesce(sum(coalesce(pg_column_size(state), 0) + coalesce(pg_column_size(output), 0) + 100), 0)
FROM runs_checkpoint TABLESAMPLE SYSTEM (%s) GROUP BY 1"""
_EFFECTS = """
SELECT count(*), coalesce(sum(coalesce(pg_column_size(result), 0)), 0),
    coalesce(sum(pg_column_size(request_summary) + pg_column_size(error_message)), 0), count(*) * 300
FROM runs_effect TABLESAMPLE SYSTEM (%s)"""
_FILES = "SELECT data_class, count(*), coalesce(sum(size_bytes), 0) FROM runs_artifact GROUP BY 1"
_PLAIN = {
    "runs_run": "effect_key",
    "runs_lineage": "checkpoint",
    "runs_made_plan": "checkpoint",
    "runs_review": "event",
    "runs_decision": "decision",
    "runs_prompt": "raw_prompt",
    "runs_event": "event",
    "runs_log_line": "event",
    "runs_receipt": "event",
    "runs_audit_entry": "audit",
    "runs_outbox_body": "effect_body",
    "runs_inbound_event": "input",
    "runs_wait": "input",
}
TABLES = (*_PLAIN, "runs_checkpoint", "runs_effect")
_PUT = "INSERT INTO runs_class_size (at, data_class, rows, bytes) VALUES (now(), %s, %s, %s)"
_FORGET = "DELETE FROM runs_class_size WHERE at < now() - %s * interval '1 day'"


@dataclass(kw_only=True)
class Size:
    """How much there is of one class."""

    rows: int = 0
    bytes: int = 0


def measure(database: Database) -> dict[str, Size]:
    """Estimate every class: exact for files and tables of one class, sampled where classes share a table."""
    tables = {name: (size, rows, pages) for name, size, rows, pages in database.fetch(_TABLES, [list(TABLES)])}
    found: dict[str, Size] = {}

    def add(name: str, rows: float, size: float) -> None:
        one = found.setdefault(name, Size())
        one.rows, one.bytes = one.rows + round(rows), one.bytes + round(size)

    for table, name in _PLAIN.items():
        size, rows, _ = tables.get(table, (0, 0, 1))
        add(name, rows, size)
    size, rows, pages = tables["runs_checkpoint"]
    parts = [(name, n, weight) for name, n, weight in database.fetch(_CHECKPOINTS, [_percent(pages)])]
    _share(add, parts, rows=rows, size=size)
    size, rows, pages = tables["runs_effect"]
    number, bodies, summaries, keys = database.fetch(_EFFECTS, [_percent(pages)])[0]
    shares = [("effect_body", number, bodies), ("effect_summary", number, summaries), ("effect_key", number, keys)]
    _share(add, shares, rows=rows * len(shares), size=size)
    for name, number, size in database.fetch(_FILES):
        add(name, number, float(size))
    return found


def record(database: Database) -> dict[str, Size]:
    """Measure and keep the figures; those of two months ago go."""
    found = measure(database)
    with database.transaction() as cursor:
        for name, size in sorted(found.items()):
            cursor.execute(_PUT, [name, size.rows, size.bytes])
        cursor.execute(_FORGET, [KEEP_DAYS])
    return found


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How much there is of one class, and how much there was about a week ago."""

    data_class: str
    rows: int
    bytes: int
    at: datetime
    before: int | None
    """Bytes a week ago; None while nothing was measured then."""
    since: datetime | None

    @property
    def grown(self) -> int:
        return 0 if self.before is None else self.bytes - self.before

    @property
    def alarming(self) -> bool:
        """Whether it grew by half within the week, and by something that matters."""
        return self.grown >= max(ALARM_BYTES, ALARM_SHARE * (self.before or 0))


_GROWTH = """
SELECT c.name, new.rows, new.bytes, new.at, old.bytes, old.at FROM unnest(%(classes)s::text[]) c(name)
JOIN LATERAL (SELECT s.rows, s.bytes, s.at FROM runs_class_size s WHERE s.data_class = c.name
              ORDER BY s.at DESC LIMIT 1) new ON true
LEFT JOIN LATERAL (SELECT s.bytes, s.at FROM runs_class_size s
    WHERE s.data_class = c.name AND s.at < new.at AND s.at >= new.at - %(days)s * interval '1 day'
    ORDER BY s.at LIMIT 1) old ON true
ORDER BY new.bytes DESC, c.name"""


def growth() -> list[Growth]:
    """Each class as it was measured last, the largest first, with what was measured a week before."""
    with connection.cursor() as cursor:
        cursor.execute(_GROWTH, {"classes": [*CLASSES, "audit"], "days": ALARM_DAYS})
        return [
            Growth(data_class=name, rows=rows, bytes=size, at=at, before=before, since=since)
            for name, rows, size, at, before, since in cursor.fetchall()
        ]


def _percent(pages: int) -> float:
    return min(100.0, 100.0 * SAMPLE_PAGES / max(pages, 1))


def _share(
    add: Callable[[str, float, float], None], parts: list[tuple[str, int, int]], *, rows: int, size: int
) -> None:
    total_rows, total = sum(part[1] for part in parts), sum(part[2] for part in parts)
    for name, number, weight in parts:
        add(name, rows * number / max(total_rows, 1), size * float(weight) / float(max(total, 1)))

"""`retention`: a large history is removed beside live work: rows a second, what commits cost meanwhile, bloat after."""

from __future__ import annotations

import time
from itertools import pairwise

import psycopg

from benchmarks import history
from benchmarks.draining import begin
from benchmarks.fleet import Fleet, fleet
from benchmarks.history import Shape
from benchmarks.marks import Marks
from benchmarks.results import Figure, Result, at_most, quantile
from benchmarks.scratch import CHECKOUT, Place
from benchmarks.workflows import STOP
from durableops.engine.database import Database
from durableops.upkeep.retention.cleaner import Cleaner

WORKFLOW = "bench-pages"
OLD_DAYS, YOUNG_DAYS = 500.0, 0.5
EFFECTS_OF_A_RUN = 5
OFTEN, NEVER = "0.1", "1000000"
"""Seconds between two rounds of the cleaner."""
VACUUMED_SHARE = 0.03
"""Dead rows that autovacuum may leave, of all."""
PATIENCE_SECONDS = 240.0


def measure(
    place: Place,
    *,
    events: int = 2_000_000,
    checkpoints: int = 1_000_000,
    effects: int = 500_000,
    seconds: float = 20.0,
    vacuum_seconds: float = PATIENCE_SECONDS,
) -> Result:
    """Write a history, half of it old enough to go; time commits without and with the cleaner; clean; write again."""
    began = time.monotonic()
    runs = max(2, effects // EFFECTS_OF_A_RUN)
    shape = Shape(
        checkpoints=max(2, checkpoints // runs), effects=max(1, effects // runs), events=max(1, events // runs)
    )
    old = runs // 2
    with psycopg.connect(place.owner_url, autocommit=True) as connection:
        connection.execute((CHECKOUT / "deploy" / "autovacuum.sql").read_text(encoding="utf-8"))
        begin(WORKFLOW, "live")
        history.write(connection, shape, first=1, runs=old, days=OLD_DAYS)
        history.write(connection, shape, first=old + 1, runs=runs - old, days=YOUNG_DAYS)
        connection.execute("VACUUM (ANALYZE)")
        loaded = time.monotonic() - began
        before = history.sizes(connection)
        alone, beside, courteous = _commits(place, connection, seconds)
        full = _clean(connection)
        left = _await_vacuum(connection, runs * shape.rows, vacuum_seconds)
        history.write(connection, shape, first=runs + 1, runs=old, days=YOUNG_DAYS)
        after = history.sizes(connection)
        remaining = _count(connection, "SELECT count(*) FROM runs_run WHERE workflow = 'bench-old'")
    figures = {
        "rows_written": Figure(value=runs * shape.rows, unit="rows", note=f"{runs:,} runs, in {loaded:.0f} s"),
        "commit_p95_alone": Figure(value=_p95(alone), unit="ms", note=f"of {len(alone):,} commits"),
        "commit_p95_beside_the_cleaner": Figure(value=_p95(beside), unit="ms", note=f"of {len(beside):,} commits"),
        "commit_p95_ratio": Figure(value=round(_p95(beside) / _p95(alone), 2), unit="times"),
        "rows_per_second_beside_live_work": Figure(value=round(courteous, 1), unit="rows/s"),
        "rows_per_second_at_full_speed": Figure(value=full, unit="rows/s", note="" if full else "nothing was left"),
        "dead_rows_left": Figure(value=left, unit="rows", note="once autovacuum had its turn"),
        "table_growth": Figure(value=round(after[0] / before[0], 3), unit="times"),
        "index_growth": Figure(value=round(after[1] / before[1], 3), unit="times"),
        "runs_wrongly_left": Figure(value=remaining - runs, unit="runs"),
    }
    targets = [
        at_most("p95 of checkpoint commits beside the cleaner", 1.5, figures["commit_p95_ratio"]),
        at_most("tables after removing half and writing as much again", 1.2, figures["table_growth"]),
        at_most("indexes after the same", 1.2, figures["index_growth"]),
    ]
    return Result(bench="retention", seconds=time.monotonic() - began, figures=figures, targets=targets)


def _commits(place: Place, connection: psycopg.Connection, seconds: float) -> tuple[list[float], list[float], float]:
    """Milliseconds of commits without and with a cleaner beside them; and how many rows a second that one removed."""
    marks = Marks(place.marks_path)
    with fleet(place) as processes:
        place.environment["DURABLEOPS_RETENTION_SECONDS"] = NEVER
        upkeep = processes.start_upkeep()
        processes.start_worker()
        marks.wait(lambda found: len(found) > 100, seconds=PATIENCE_SECONDS)
        alone = _watch(marks, seconds)
        processes.kill(upkeep)
        place.environment["DURABLEOPS_RETENTION_SECONDS"] = OFTEN
        _start_cleaning(processes, connection)
        since = time.monotonic()
        beside = _watch(marks, seconds)
        speed = _removed(connection) / (time.monotonic() - since)
        (place.folder / STOP).touch()
    return alone, beside, speed


def _start_cleaning(processes: Fleet, connection: psycopg.Connection) -> None:
    """Start the upkeep that cleans, and wait until it has begun."""
    processes.start_upkeep()
    end = time.monotonic() + PATIENCE_SECONDS
    while not _removed(connection):
        if time.monotonic() > end:
            raise TimeoutError("upkeep did not begin to clean")
        time.sleep(0.05)


def _watch(marks: Marks, seconds: float) -> list[float]:
    """The time from each commit to the next, in milliseconds: between two pages there is nothing else."""
    marks.new()
    time.sleep(seconds)
    return [(later.at - earlier.at) * 1000 for earlier, later in pairwise(marks.new())]


def _clean(connection: psycopg.Connection) -> float | None:
    """Remove the rest without pauses. Returns rows a second; None if nothing was left."""
    database = Database(name="bench")
    as_of = connection.execute("SELECT clock_timestamp()").fetchone()
    assert as_of is not None
    try:
        began = time.monotonic()
        done = Cleaner(database, by="bench").clean(as_of[0])
        return round(done.rows / (time.monotonic() - began), 1) if done.rows else None
    finally:
        database.close()


def _await_vacuum(connection: psycopg.Connection, rows: int, seconds: float) -> int:
    """Give autovacuum its turn. Returns how many dead rows it left."""
    end = time.monotonic() + seconds
    while (left := history.dead(connection)) > VACUUMED_SHARE * rows and time.monotonic() < end:
        time.sleep(1.0)
    return left


def _removed(connection: psycopg.Connection) -> int:
    return _count(connection, "SELECT coalesce(sum(rows), 0) FROM runs_retention_lane WHERE name = 'runs'")


def _count(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _p95(milliseconds: list[float]) -> float:
    return round(quantile(milliseconds, 0.95), 3)

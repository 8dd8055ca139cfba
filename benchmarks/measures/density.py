"""`density`: how many runs one process holds while they wait: a slow HTTP call each, all at once, async and plain."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.fleet import cpu_seconds, fleet, peak_megabytes
from benchmarks.marks import Mark, Marks
from benchmarks.results import Figure, Result, at_most
from benchmarks.scratch import CHECKOUT, Place
from benchmarks.workflows import SLOW_URL
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant

PATIENCE_SECONDS = 120.0
CONNECTIONS = 10.0
"""Of one worker, whatever it holds: four of the engine, four of Django code in steps, the attendant's, the parent's."""
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'durableops %'"""
_LOST = "SELECT count(*) FROM runs_event WHERE event IN ('lose_worker', 'late_result_rejected')"
_ENDED = "SELECT count(*) FROM runs_worker WHERE ended_at IS NOT NULL"


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """So many runs that waited in one process."""

    runs: int
    done: int
    seconds: float
    """From the first step that began to the last run on record as succeeded."""
    began_within: float
    """From the first step that began to the last."""
    answered_within: float
    """From the first step that had its answer to the last."""
    peak_memory: float | None
    connections: int
    lost: int
    """Runs or leases that were lost."""
    most_at_once: int
    cpu: float


def measure(
    place: Place, *, runs: int = 1000, plain_runs: int = 200, seconds: float = 10.0, overhead_seconds: float = 3.0
) -> Result:
    """Let `runs` async runs and then `plain_runs` plain ones each wait `seconds` for an answer."""
    began = time.monotonic()
    with psycopg.connect(place.owner_url, autocommit=True) as connection, _slow_server(seconds) as url:
        many = _crowd(place, connection, "bench-waits", runs, url)
        plain = _crowd(place, connection, "bench-waits-plainly", plain_runs, url)
    figures = {**_figures("async", many), **_figures("plain", plain)}
    limit = seconds + overhead_seconds
    targets = []
    for kind, crowd in (("async", many), ("plain", plain)):
        targets += [
            at_most(f"{crowd.runs} {kind} runs at once: time", limit, figures[f"{kind}_seconds"]),
            at_most(f"{crowd.runs} {kind} runs at once: memory", 400.0, figures[f"{kind}_peak_memory"]),
            at_most(f"{crowd.runs} {kind} runs at once: lost", 0.0, figures[f"{kind}_lost"]),
            at_most(f"{crowd.runs} {kind} runs at once: connections", CONNECTIONS, figures[f"{kind}_connections"]),
        ]
    return Result(bench="density", seconds=time.monotonic() - began, figures=figures, targets=targets)


def _figures(kind: str, crowd: Crowd) -> dict[str, Figure]:
    return {
        f"{kind}_runs": Figure(value=crowd.done, unit="runs"),
        f"{kind}_seconds": Figure(value=round(crowd.seconds, 2), unit="s"),
        f"{kind}_began_within": Figure(value=round(crowd.began_within, 2), unit="s"),
        f"{kind}_answered_within": Figure(value=round(crowd.answered_within, 2), unit="s"),
        f"{kind}_most_at_once": Figure(value=crowd.most_at_once, unit="runs"),
        f"{kind}_peak_memory": Figure(value=crowd.peak_memory, unit="MB"),
        f"{kind}_cpu_per_run": Figure(value=round(crowd.cpu / max(1, crowd.done) * 1000, 2), unit="ms"),
        f"{kind}_connections": Figure(value=crowd.connections, unit="connections"),
        f"{kind}_lost": Figure(value=crowd.lost, unit="runs and leases"),
    }


def _crowd(place: Place, connection: psycopg.Connection[Any], workflow: str, runs: int, url: str) -> Crowd:
    marks = Marks(place.marks_path)
    marks.new()
    before = _lost(connection)
    for number in range(runs):
        start(workflow, {"key": f"{workflow}-{number}"}, tenant=get_or_make_tenant("bench"), actor="bench")
    with fleet(place) as processes:
        worker = processes.start_worker(concurrency=runs, **{SLOW_URL: url})
        seen, connections = _follow(marks, connection, runs)
        ended = _until_succeeded(connection, workflow, runs)
        cpu, memory = cpu_seconds(worker.pid), peak_megabytes(worker.pid)
        lost = _lost(connection) - before
    starts = [mark.at for mark in seen if mark.kind == "start"]
    ends = [mark.at for mark in seen if mark.kind == "end"]
    return Crowd(
        runs=runs,
        done=_succeeded(connection, workflow),
        seconds=ended - min(starts),
        began_within=max(starts) - min(starts),
        answered_within=max(ends) - min(ends),
        peak_memory=memory,
        connections=connections,
        lost=lost,
        most_at_once=_most_at_once(seen),
        cpu=cpu,
    )


def _follow(marks: Marks, connection: psycopg.Connection[Any], runs: int) -> tuple[list[Mark], int]:
    """Collect the marks to the last end, and the most connections that were open meanwhile."""
    seen: list[Mark] = []
    most, end = 0, time.monotonic() + PATIENCE_SECONDS
    while sum(mark.kind == "end" for mark in seen) < runs and time.monotonic() < end:
        seen += marks.wait(lambda found: len(found) > 0, seconds=0.25)
        most = max(most, int(_one(connection, _CONNECTIONS)))
    return seen, most


def _until_succeeded(connection: psycopg.Connection[Any], workflow: str, runs: int) -> float:
    end = time.monotonic() + PATIENCE_SECONDS
    while _succeeded(connection, workflow) < runs and time.monotonic() < end:
        time.sleep(0.02)
    return time.time()


def _most_at_once(seen: list[Mark]) -> int:
    """How many were between their two marks at one moment."""
    now = most = 0
    for mark in sorted(seen, key=lambda mark: mark.at):
        now += 1 if mark.kind == "start" else -1
        most = max(most, now)
    return most


def _succeeded(connection: psycopg.Connection[Any], workflow: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM runs_run WHERE state = 'succeeded' AND workflow = %s", [workflow]
    ).fetchone()
    return int(row[0]) if row else 0


def _lost(connection: psycopg.Connection[Any]) -> int:
    return int(_one(connection, _LOST)) + int(_one(connection, _ENDED))


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


@contextmanager
def _slow_server(seconds: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.slow_server", str(seconds)],
        cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.communicate("")

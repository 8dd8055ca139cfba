"""Working off a backlog of runs with one worker, and what it took: seconds, commits, bytes, processor time, memory."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from benchmarks.fleet import cpu_seconds, fleet, peak_megabytes
from benchmarks.marks import Mark, Marks
from benchmarks.scratch import Place
from benchmarks.wal import WalMeter
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant

PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Drain:
    """A backlog worked off by one worker."""

    runs: int
    seconds: float
    commits: int | None
    heartbeats: int
    """How many of the commits were the worker's own sign of life: their number depends on how long it took."""
    record_bytes: int | None
    trouble: str
    worker_cpu: float
    peak_memory: float | None


def drain(place: Place, connection: psycopg.Connection, runs: int, *, workflow: str, concurrency: int = 1) -> Drain:
    """Start so many runs, which mark their start and end, and let one worker end them all."""
    marks = Marks(place.marks_path)
    marks.new()
    begin(workflow, "warm")
    for number in range(runs):
        begin(workflow, str(number))
    meter, beaten = WalMeter(connection), _heartbeats(connection)
    with fleet(place) as processes:
        worker = processes.start_worker(concurrency=concurrency)
        seen = marks.wait(lambda found: ends_in(found) > 0, seconds=PATIENCE_SECONDS)
        start_up = cpu_seconds(worker.pid)
        seen += marks.wait(lambda found: ends_in(seen + found) > runs, seconds=PATIENCE_SECONDS, pause=0.05)
        cpu, memory = cpu_seconds(worker.pid) - start_up, peak_megabytes(worker.pid)
    written, beaten = meter.stop(), _heartbeats(connection) - beaten
    # The first run warms the worker up; the peers' scripts leave theirs out too.
    counted = [mark for mark in seen if mark.key != "warm"]
    ends = [mark.at for mark in counted if mark.kind == "end"]
    return Drain(
        runs=len(ends),
        seconds=max(ends) - min(mark.at for mark in counted if mark.kind == "start"),
        commits=written.commits if written else None,
        heartbeats=beaten,
        record_bytes=written.record_bytes if written else None,
        trouble=meter.trouble,
        worker_cpu=cpu,
        peak_memory=memory,
    )


def _heartbeats(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT coalesce(sum(counter), 0) FROM runs_worker").fetchone()
    assert row is not None
    return int(row[0])


def ends_in(found: list[Mark]) -> int:
    """How many runs came to their end."""
    return sum(mark.kind == "end" for mark in found)


def begin(workflow: str, key: str) -> None:
    """Start one run."""
    start(workflow, {"key": key}, tenant=get_or_make_tenant("bench"), actor="bench")

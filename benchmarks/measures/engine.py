"""`engine`: ten no-op steps a run through one worker: steps/s, start latency, commits, bytes, memory, idle load."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import psycopg

from benchmarks.fleet import Fleet, cpu_seconds, fleet, peak_megabytes
from benchmarks.marks import Mark, Marks
from benchmarks.results import Figure, Result, at_most, spread
from benchmarks.scratch import Place
from benchmarks.wal import WalMeter
from durableops.conf import get_conf
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant

STEPS = 10
CROWDS = (16, 64)
"""How many runs a worker holds, besides one."""
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Drain:
    """A backlog worked off by one worker."""

    steps: int
    seconds: float
    commits: int | None
    record_bytes: int | None
    trouble: str
    worker_cpu: float
    peak_memory: float | None


def measure(place: Place, *, runs: int = 400, samples: int = 50, idle_seconds: float = 5.0) -> Result:
    """Work off `runs` runs, then time `samples` single starts, then watch an idle worker."""
    began = time.monotonic()
    with psycopg.connect(place.owner_url, autocommit=True) as connection:
        drained = _drain(place, connection, runs, concurrency=1)
        crowds = {n: _drain(place, connection, runs, concurrency=n) for n in CROWDS}
        latencies = _latencies(place, samples)
        idle = _idle_rate(place, connection, idle_seconds)
    figures = _figures(drained, latencies, idle)
    for n, crowd in crowds.items():
        figures |= _crowd_figures(n, crowd)
    targets = [
        at_most("durable commits per step, claim and finish included", 1.1, figures["commits_per_step"]),
        at_most("start latency p50", 10.0, figures["start_latency_p50"]),
    ]
    return Result(bench="engine", seconds=time.monotonic() - began, figures=figures, targets=targets)


def _figures(drained: Drain, latencies: list[float], idle: float | None) -> dict[str, Figure]:
    def per_step(total: float | None, unit: str, digits: int) -> Figure:
        value = None if total is None else round(total / drained.steps, digits)
        return Figure(value=value, unit=unit, note=drained.trouble if total is None else "")

    return {
        "steps_per_second": Figure(value=round(drained.steps / drained.seconds, 1), unit="steps/s"),
        **{f"start_latency_{name}": figure for name, figure in spread(latencies, unit="ms", digits=2).items()},
        "commits_per_step": per_step(drained.commits, "commits", 3),
        "wal_bytes_per_step": per_step(drained.record_bytes, "bytes", 0),
        "worker_cpu_per_step": per_step(drained.worker_cpu * 1000, "ms", 3),
        "worker_peak_memory": Figure(value=drained.peak_memory, unit="MB"),
        "idle_statements_per_second": Figure(value=idle, unit="statements/s"),
    }


def _crowd_figures(concurrency: int, crowd: Drain) -> dict[str, Figure]:
    """What changes when a worker holds so many runs at once."""
    found = _figures(crowd, [], None)
    names = ("steps_per_second", "commits_per_step", "worker_cpu_per_step", "worker_peak_memory")
    return {f"{name}_at_{concurrency}": found[name] for name in names}


def _drain(place: Place, connection: psycopg.Connection, runs: int, *, concurrency: int) -> Drain:
    marks = Marks(place.marks_path)
    marks.new()
    _start("warm")
    for number in range(runs):
        _start(str(number))
    meter = WalMeter(connection)
    with fleet(place) as processes:
        worker = processes.start_worker(concurrency=concurrency)
        seen = marks.wait(lambda found: _ends(found) > 0, seconds=PATIENCE_SECONDS)
        start_up = cpu_seconds(worker.pid)
        seen += marks.wait(lambda found: _ends(seen + found) > runs, seconds=PATIENCE_SECONDS, pause=0.05)
        cpu, memory = cpu_seconds(worker.pid) - start_up, peak_megabytes(worker.pid)
    written = meter.stop()
    # The first run warms the worker up; the peers' scripts leave theirs out too.
    counted = [mark for mark in seen if mark.key != "warm"]
    ends = [mark.at for mark in counted if mark.kind == "end"]
    return Drain(
        steps=len(ends) * STEPS,
        seconds=max(ends) - min(mark.at for mark in counted if mark.kind == "start"),
        commits=written.commits if written else None,
        record_bytes=written.record_bytes if written else None,
        trouble=meter.trouble,
        worker_cpu=cpu,
        peak_memory=memory,
    )


def _latencies(place: Place, samples: int) -> list[float]:
    """Milliseconds from asking for a run to its first step being entered, the worker asleep each time."""
    marks = Marks(place.marks_path)
    marks.new()
    found = []
    with fleet(place) as processes:
        _wake_up(processes, marks)
        for number in range(samples):
            time.sleep(random.uniform(0.025, 0.075))  # noqa: S311 - so that no sample keeps step with a timer
            asked = time.time()
            _start(f"one-{number}")
            seen = marks.wait(lambda found: _ends(found) > 0, seconds=30, pause=0.002)
            found += [(mark.at - asked) * 1000 for mark in seen if mark.kind == "start"]
    return found


def _idle_rate(place: Place, connection: psycopg.Connection, seconds: float) -> float:
    """Statements per second of a worker that has nothing to do; each of its statements is one transaction."""
    marks = Marks(place.marks_path)
    marks.new()
    with fleet(place) as processes:
        _wake_up(processes, marks)
        # A session reports to the counters at the end of a transaction, and an idle worker makes one in a poll.
        time.sleep(2 * get_conf().poll_seconds)
        before, began = _transactions(connection), time.monotonic()
        time.sleep(seconds)
        after, ended = _transactions(connection), time.monotonic()
    # Without the looks themselves.
    return round(max(0, after - before - 1) / (ended - began), 1)


def _wake_up(processes: Fleet, marks: Marks) -> None:
    processes.start_worker()
    _start("wake")
    marks.wait(lambda found: _ends(found) > 0, seconds=30)
    time.sleep(1.0)  # it falls asleep


def _transactions(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def _ends(found: list[Mark]) -> int:
    return sum(mark.kind == "end" for mark in found)


def _start(key: str) -> None:
    start("bench-ten", {"key": key}, tenant=get_or_make_tenant("bench"), actor="bench")

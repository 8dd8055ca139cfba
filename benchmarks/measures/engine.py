"""`engine`: ten no-op steps a run through one worker: rates, latency, commits, bytes; keyed calls; messages."""

from __future__ import annotations

import random
import time

import psycopg

from benchmarks.calls import measure_calls
from benchmarks.draining import Drain, begin, drain, ends_in
from benchmarks.fleet import Fleet, fleet
from benchmarks.load import leave_nothing_to_vacuum, measure_load, transactions
from benchmarks.marks import Marks
from benchmarks.messages import measure_messages
from benchmarks.results import Figure, Result, at_most, spread
from benchmarks.scratch import Place
from durableops.conf import get_conf

WORKFLOW = "bench-ten"
STEPS = 10
CROWDS = (16, 64)
"""How many runs a worker holds, besides one."""


def measure(
    place: Place,
    *,
    runs: int = 400,
    samples: int = 50,
    idle_seconds: float = 5.0,
    queued: int = 100_000,
    most_in_hand: int = max(CROWDS),
) -> Result:
    """Work off `runs` runs, one in hand and then up to `most_in_hand`, time `samples` single starts, and so on.

    `queued` runs wait while claims are timed.
    """
    began = time.monotonic()
    with psycopg.connect(place.owner_url, autocommit=True) as connection:
        drained = drain(place, connection, runs, workflow=WORKFLOW)
        crowds = {
            n: drain(place, connection, runs, workflow=WORKFLOW, concurrency=n) for n in CROWDS if n <= most_in_hand
        }
        latencies = _latencies(place, samples)
        idle = _idle_rate(place, connection, idle_seconds)
        of_calls, call_targets = measure_calls(place, connection, runs)
        of_messages, message_targets = measure_messages(place, connection, runs)
        of_load, load_targets = measure_load(
            place, connection, idle_worker=idle, idle_seconds=idle_seconds, queued=queued
        )
    figures = _figures(drained, latencies, idle)
    for n, crowd in crowds.items():
        figures |= _crowd_figures(n, crowd)
    figures |= of_calls | of_messages | of_load
    targets = [
        at_most("durable commits per step, claim and finish included", 1.1, figures["commits_per_step"]),
        at_most("start latency p50", 10.0, figures["start_latency_p50"]),
        *call_targets,
        *message_targets,
        *load_targets,
    ]
    return Result(bench="engine", seconds=time.monotonic() - began, figures=figures, targets=targets)


def _figures(drained: Drain, latencies: list[float], idle: float | None) -> dict[str, Figure]:
    def per_step(total: float | None, unit: str, digits: int) -> Figure:
        value = None if total is None else round(total / (drained.runs * STEPS), digits)
        return Figure(value=value, unit=unit, note=drained.trouble if total is None else "")

    return {
        "steps_per_second": Figure(value=round(drained.runs * STEPS / drained.seconds, 1), unit="steps/s"),
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
            begin(WORKFLOW, f"one-{number}")
            seen = marks.wait(lambda found: ends_in(found) > 0, seconds=30, pause=0.002)
            found += [(mark.at - asked) * 1000 for mark in seen if mark.kind == "start"]
    return found


def _idle_rate(place: Place, connection: psycopg.Connection, seconds: float) -> float:
    """Statements per second of a worker that has nothing to do; each of its statements is one transaction."""
    marks = Marks(place.marks_path)
    marks.new()
    with fleet(place) as processes:
        _wake_up(processes, marks)
        leave_nothing_to_vacuum(connection)
        # A session reports to the counters at the end of a transaction, and an idle worker makes one in a poll.
        time.sleep(2 * get_conf().poll_seconds)
        before, began = transactions(connection), time.monotonic()
        time.sleep(seconds)
        after, ended = transactions(connection), time.monotonic()
    # Without the looks themselves.
    return round(max(0, after - before - 1) / (ended - began), 1)


def _wake_up(processes: Fleet, marks: Marks) -> None:
    processes.start_worker()
    begin(WORKFLOW, "wake")
    marks.wait(lambda found: ends_in(found) > 0, seconds=30)
    time.sleep(1.0)  # it falls asleep

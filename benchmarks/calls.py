"""What calls of a keyed tool cost: how many a second, and how many durable commits for one, in a loop, and together."""

from __future__ import annotations

import psycopg

from benchmarks.draining import Drain, drain
from benchmarks.results import Figure, Target, at_most
from benchmarks.scratch import Place
from benchmarks.workflows import CALLS

ROUNDING = 0.1
"""A worker commits a few times for itself when it starts and stops. Spread over the runs, that is less."""
WORKFLOWS = {"lone_call": "bench-call", f"loop_of_{CALLS}": "bench-loop", f"call_many_of_{CALLS}": "bench-many"}
TOLD = dict(zip(WORKFLOWS, ("a lone call", f"a loop of {CALLS} calls", f"call_many of {CALLS}"), strict=True))


def measure_calls(place: Place, connection: psycopg.Connection, runs: int) -> tuple[dict[str, Figure], list[Target]]:
    """Work off `runs` runs of one step for each way of calling. Nothing is sent: the tool answers at once."""
    drained = {name: drain(place, connection, runs, workflow=workflow) for name, workflow in WORKFLOWS.items()}
    commits = {name: commits_of(found) for name, found in drained.items()}
    calls = {name: found.runs * (1 if name == "lone_call" else CALLS) for name, found in drained.items()}
    figures = {f"keyed_calls_per_second_{name}": _rate(calls[name], found) for name, found in drained.items()}
    figures |= {f"commits_per_{name}": figure for name, figure in commits.items()}
    wanted = {"lone_call": 2, f"loop_of_{CALLS}": CALLS + 1, f"call_many_of_{CALLS}": 2}
    targets = [
        at_most(
            f"durable commits of a step with a {name.replace('_', ' ')}, claim included", want + ROUNDING, commits[name]
        )
        for name, want in wanted.items()
    ]
    return figures, targets


def _rate(calls: int, found: Drain) -> Figure:
    return Figure(value=round(calls / found.seconds, 1), unit="calls/s")


def commits_of(found: Drain) -> Figure:
    """Durable commits of a run, without the worker's own signs of life."""
    if found.commits is None:
        return Figure(value=None, unit="commits", note=found.trouble)
    return Figure(value=round((found.commits - found.heartbeats) / found.runs, 2), unit="commits")

"""What the engine costs while nothing happens, and what a claim costs by the length of the queue."""

from __future__ import annotations

import time

import psycopg

from benchmarks.fleet import fleet
from benchmarks.looks import COMMITS, measure_looks
from benchmarks.queues import FEW, Cost, claim_cost
from benchmarks.results import Figure, Target, at_most
from benchmarks.scratch import Place
from durableops.upkeep.rounds import QUIET_SECONDS

PATIENCE_SECONDS = 60.0
MOST_STATEMENTS = 2.0
MOST_TIMES = 1.5
REPORT_SECONDS = 2.0
"""A session tells the counters of what it did with a delay."""


def measure_load(
    place: Place, connection: psycopg.Connection, *, idle_worker: float, idle_seconds: float, queued: int
) -> tuple[dict[str, Figure], list[Target]]:
    """Figures and targets; `idle_worker` is what a worker's two processes together say in a second."""
    figures = {
        "idle_statements_per_process": Figure(value=round(idle_worker / 2, 2), unit="statements/s"),
        "idle_statements_of_upkeep": Figure(value=_idle_upkeep(place, connection, idle_seconds), unit="statements/s"),
    }
    targets = [
        at_most("statements/s of an idle worker's process", MOST_STATEMENTS, figures["idle_statements_per_process"]),
        at_most("statements/s of idle upkeep", MOST_STATEMENTS, figures["idle_statements_of_upkeep"]),
    ]
    for name in ("without_quotas", "with_quotas"):
        cost = claim_cost(connection, many=queued, with_quotas=name == "with_quotas")
        figures |= _figures(name, cost)
        told = f"cost of a claim {name.replace('_', ' ')}, {queued:,} queued to {FEW:,}"
        targets.append(at_most(told, MOST_TIMES, figures[f"claim_ratio_{name}"]))
    figures |= measure_looks(connection, commits=min(COMMITS, queued))
    targets.append(at_most("cost of the looks of promise 12 in a commit", MOST_TIMES, figures["commit_ratio_of_looks"]))
    return figures, targets


def _figures(name: str, cost: Cost) -> dict[str, Figure]:
    return {
        f"claim_{name}_few": Figure(value=cost.few, unit="ms"),
        f"claim_{name}_many": Figure(value=cost.many, unit="ms"),
        f"claim_ratio_{name}": Figure(value=cost.ratio, unit="times"),
    }


def _idle_upkeep(place: Place, connection: psycopg.Connection, seconds: float) -> float:
    """Statements per second of upkeep once nothing has happened for a while; a statement is one transaction."""
    with fleet(place) as processes:
        processes.start_upkeep()
        end = time.monotonic() + PATIENCE_SECONDS
        while not _sessions(connection) and time.monotonic() < end:
            time.sleep(0.1)
        leave_nothing_to_vacuum(connection)
        if seconds > 1:
            time.sleep(QUIET_SECONDS + REPORT_SECONDS)
        before, began = transactions(connection), time.monotonic()
        time.sleep(seconds)
        after, ended = transactions(connection), time.monotonic()
    # Without the looks themselves.
    return round(max(0, after - before - 1) / (ended - began), 1)


def _sessions(connection: psycopg.Connection) -> int:
    return int(_one(connection, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durableops upkeep'"))


def leave_nothing_to_vacuum(connection: psycopg.Connection) -> None:
    """Do now what autovacuum would do after so many rows: its transactions are counted with everybody's."""
    connection.execute("VACUUM (ANALYZE)")


def transactions(connection: psycopg.Connection) -> int:
    """Transactions committed in this database so far."""
    return int(_one(connection, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"))


def _one(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])

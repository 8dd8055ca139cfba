"""What the outbox delivers: messages a second from a backlog with one relay, and how far behind it is under way."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from benchmarks.calls import commits_of
from benchmarks.draining import PATIENCE_SECONDS, begin, drain
from benchmarks.fleet import Fleet, fleet
from benchmarks.results import Figure, Target, at_least, at_most, spread
from benchmarks.scratch import Place
from benchmarks.wal import WalMeter
from benchmarks.workflows import CALLS

LEAST_A_SECOND = 500.0
MOST_BEHIND_MILLISECONDS = 250.0
PACE_SECONDS = 0.02
"""Between two runs that post one message each, while the lag is looked at."""

_LEFT = "SELECT count(*) FROM runs_outbox_message WHERE state = 'pending'"
_MADE = "SELECT count(*) FROM runs_outbox_message WHERE id > %s"
_NEWEST = "SELECT coalesce(max(id), 0) FROM runs_outbox_message"
_RELAYS = "SELECT count(*) FROM runs_worker WHERE kind = 'relay' AND ended_at IS NULL"
_SPAN = """
SELECT count(*), extract(epoch FROM max(finished_at) - min(attempted_at)) FROM runs_outbox_message
WHERE state = 'delivered'"""
_LAGS = """
SELECT 1000 * extract(epoch FROM finished_at - created_at) FROM runs_outbox_message
WHERE state = 'delivered' AND id > %s"""


def measure_messages(place: Place, connection: psycopg.Connection, runs: int) -> tuple[dict[str, Figure], list[Target]]:
    """Let `runs` runs post a backlog and one relay deliver it; then deliver while as many runs post one each.

    Nothing leaves the machine: the handler answers at once.
    """
    posted = drain(place, connection, runs, workflow="bench-post")
    meter = WalMeter(connection)
    with fleet(place) as processes:
        relay(processes, connection)
        _wait(connection, lambda: _one(connection, _LEFT) == 0)
        written = meter.stop()
        delivered, seconds = connection.execute(_SPAN).fetchone() or (0, 0)
        lags = _lags(processes, connection, runs)
    rate = Figure(value=round(delivered / float(seconds), 1) if seconds else None, unit="messages/s")
    per_message = Figure(value=None, unit="commits", note=meter.trouble)
    if written is not None:
        per_message = Figure(value=round(written.commits / delivered, 2), unit="commits")
    behind = {f"message_lag_{name}": figure for name, figure in spread(lags, unit="ms", digits=1).items()}
    figures = {
        "outbox_messages_per_second": rate,
        "commits_per_message_delivered": per_message,
        f"commits_per_post_of_{CALLS}": commits_of(posted),
        **behind,
    }
    return figures, [
        at_least("messages a second from a backlog, one relay", LEAST_A_SECOND, rate),
        at_most("from a message's commit to its delivery, p95", MOST_BEHIND_MILLISECONDS, behind["message_lag_p95"]),
    ]


def relay(processes: Fleet, connection: psycopg.Connection) -> None:
    """Start one and wait until it has registered."""
    processes.start_relay()
    _wait(connection, lambda: _one(connection, _RELAYS) > 0)


def _lags(processes: Fleet, connection: psycopg.Connection, runs: int) -> list[float]:
    """Milliseconds from a message's commit to its delivery, at a pace that keeps neither worker nor relay busy."""
    newest = _one(connection, _NEWEST)
    processes.start_worker()
    for number in range(runs):
        begin("bench-post-one", f"lag-{number}")
        time.sleep(PACE_SECONDS)
    _wait(connection, lambda: _one(connection, _MADE, newest) >= runs and _one(connection, _LEFT) == 0)
    # The first ones waited for the worker's process to start.
    return [float(row[0]) for row in connection.execute(_LAGS, [newest + runs // 10])]


def _wait(connection: psycopg.Connection, until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not until():
        if time.monotonic() > end:
            raise TimeoutError(f"{_one(connection, _LEFT)} messages are still waiting")
        time.sleep(0.05)


def _one(connection: psycopg.Connection, sql: str, *values: int) -> int:
    row = connection.execute(sql, values).fetchone()
    assert row is not None
    return int(row[0])

"""What promise 12 costs on the hot path: a commit that looks at cancel, pause, switches and deadline, and one that
does not."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import psycopg

from benchmarks.queues import empty, fill
from benchmarks.results import Figure
from durableops.engine.database import Database
from runs import fenced
from runs.claiming import Claimed, Taker, claim
from runs.fenced import SWITCHED_OFF, CheckpointRow, FencedWrite

COMMITS = 400
WARM = 40
_LOOKS = (
    ("run.cancel_requested, run.paused,", "false, false,"),
    (SWITCHED_OFF.format(run="run"), "false"),
    ("extract(epoch FROM run.deadline_at - now())::float8", "NULL::float8"),
)


def measure_looks(connection: psycopg.Connection, *, commits: int = COMMITS) -> dict[str, Figure]:
    """Milliseconds of one statement that commits a page, with the looks and without, turn by turn.

    Commits do not wait for the disk here, so that the statement is what is measured.
    """
    worker = fill(connection, queued=1, with_quotas=False)
    database = Database(name="bench looks", durable=False)
    plans = tuple(row[0] for row in connection.execute("SELECT id FROM runs_workflow_plan").fetchall())
    try:
        [held] = database.retrying(lambda cursor: claim(cursor, Taker(worker_id=worker, plans=plans)))
        found = _turn_by_turn(database, held, worker, commits)
    finally:
        database.close()
        empty(connection)
    with_looks, without = (statistics.median(times) for times in found)
    return {
        "commit_with_looks": Figure(value=round(with_looks, 3), unit="ms"),
        "commit_without_looks": Figure(value=round(without, 3), unit="ms"),
        "commit_ratio_of_looks": Figure(value=round(with_looks / without, 2), unit="times"),
    }


def _turn_by_turn(database: Database, held: Claimed, worker: Any, commits: int) -> tuple[list[float], list[float]]:
    found: tuple[list[float], list[float]] = ([], [])
    write = FencedWrite(run_id=held.run_id, fence=held.fence, seq=held.head_seq, worker_id=worker, step_id="a")
    for number in range(2 * (commits + WARM)):
        looks = number % 2 == 0
        page = CheckpointRow(kind="page", step_id="a", next_step="a", state=None, cursor=str(number))
        text, params = fenced.compile_write(replace(write, seq=held.head_seq + number, checkpoint=page))
        began = time.perf_counter()
        database.fetch(text if looks else _without(text), params)
        if number >= 2 * WARM:
            found[0 if looks else 1].append((time.perf_counter() - began) * 1000)
    return found


def _without(text: str) -> str:
    for look, instead in _LOOKS:
        assert look in text, look
        text = text.replace(look, instead)
    return text

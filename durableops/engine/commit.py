"""Committing what the holder says, and finding out what happened when the answer to a commit was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psycopg import errors

from durableops.engine.claim import release_unheld
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.hand import Hand
from durableops.errors import FenceLost
from runs import claiming, fenced
from runs.claiming import Claimed
from runs.fenced import FencedWrite, Written
from runs.transitions import Cursor

logger = logging.getLogger("durableops.commit")

# Waits for the row lock of whatever is still under way; once this has committed, the old write cannot land any more.
_RAISE_OWN_FENCE = """
UPDATE runs_run SET fence = fence + 1 WHERE id = %s AND fence = %s AND state = 'running' AND worker_id = %s
RETURNING fence, head_seq"""
_LOOK = """
SELECT r.fence, r.head_seq, r.state, r.cancel_requested, extract(epoch FROM r.deadline_at - now())::float8
FROM runs_run r WHERE r.id = %s"""
# A move writes its event under the holder's fence. The state alone does not tell it from what a reaper did since.
_MOVED = """
SELECT 1 FROM runs_event WHERE run_id = %s AND fence = %s AND worker_id = %s AND from_state = 'running'
AND event = ANY(%s)"""


type Also = Callable[[Cursor, Written], None]
type Statement = Callable[[Cursor, FencedWrite], Written | None]


def execute(
    database: Database,
    hand: Hand,
    write: FencedWrite,
    *,
    before: Callable[[Cursor], None] | None = None,
    also: Also | None = None,
    statement: Statement = fenced.execute,
) -> Written:
    """Commit the write and take over what it left. Raises FenceLost when the run is not ours any more.

    `before` and `also` run in the same transaction around the write, for what one statement cannot say.
    """
    while True:
        try:
            found = _once(database, write, before, also, statement)
        except ConnectionLost as lost:
            logger.warning("the answer to a commit of run %s was lost: %s", hand.run_id, lost)
            landed, write = _settle(database, write)
            if landed is not None:
                found = landed
            else:
                continue
        except errors.RestrictViolation as refused:
            # The backstop behind the statement's own conditions; reaching it means that one of them is missing.
            raise FenceLost(f"run {hand.run_id}: {refused.diag.message_primary}") from refused
        except Exception:
            # The step will fail of it; outcomes of its calls must still be written then.
            hand.put_back(write)
            raise
        if found is None:
            hand.lost = True
            raise FenceLost(
                f"run {hand.run_id} is not held under fence {write.fence} at checkpoint {write.seq} any more."
            )
        hand.written(write, found)
        return found


def execute_and_claim(database: Database, hand: Hand, write: FencedWrite) -> Claimed | None:
    """Commit what ends the run and take the next one with the same commit. Raises FenceLost as `execute` does."""
    taken: list[Claimed] = []

    def both(cursor: Cursor, write: FencedWrite) -> Written | None:
        written, claimed = claiming.execute_and_claim(cursor, write)
        taken.extend([] if claimed is None else [claimed])
        return written

    connects = database.connects
    execute(database, hand, write, statement=both)
    if not taken and database.connects != connects:
        # The write whose answer was lost may have taken a run that nobody here knows of.
        release_unheld(database, worker_id=hand.worker_id, held=[], why="the answer to its claim was lost")
    return taken[0] if taken else None


def _once(
    database: Database,
    write: FencedWrite,
    before: Callable[[Cursor], None] | None,
    also: Also | None,
    statement: Statement,
) -> Written | None:
    if before is None and also is None:
        return database.retrying(lambda cursor: statement(cursor, write))

    def together(cursor: Cursor) -> Written | None:
        if before is not None:
            before(cursor)
        found = statement(cursor, write)
        if found is not None and also is not None:
            also(cursor, found)
        return found

    return database.transacting(together)


def _settle(database: Database, write: FencedWrite) -> tuple[Written | None, FencedWrite]:
    """Learn whether a write whose answer was lost has landed. If not, return it under a fence of its own again."""
    while True:
        try:
            database.reconnect()
            rows = database.fetch(_RAISE_OWN_FENCE, [write.run_id, write.fence, write.worker_id])
            if rows and (write.checkpoint is None or rows[0][1] == write.seq):
                return None, replace(write, fence=rows[0][0])
            seen = database.fetch(_LOOK, [write.run_id])
            moved = not rows and write.transition and database.fetch(
                _MOVED, [write.run_id, write.fence, write.worker_id, [write.transition, "stop"]]
            )  # fmt: skip
            break
        except ConnectionLost:
            continue
    if rows:
        return _as_landed(seen[0]), replace(write, fence=rows[0][0])
    if moved:
        return _as_landed(seen[0]), write
    raise FenceLost(f"run {write.run_id} was taken by somebody else while the database was away.")


def _as_landed(row: tuple[Any, ...]) -> Written:
    return Written(
        head_seq=row[1],
        state=row[2],
        cancel_requested=row[3],
        paused=False,
        switched_off=False,
        deadline_left=row[4],
        intents={},
    )

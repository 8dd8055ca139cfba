"""Committing what the holder says, and finding out what happened when the answer to a commit was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import errors

from durableops.engine import bell, queues, relay_bell
from durableops.engine.database import ConnectionLost, Database, EngineCursor
from durableops.engine.hand import Hand
from durableops.engine.pool import Pool
from durableops.engine.posting import conflict_of
from durableops.errors import EffectConflict, FenceLost
from runs import claiming, fenced
from runs.fenced import Attached, Attachment, FencedWrite, Written
from runs.posting import CONFLICT
from runs.transitions import Cursor

if TYPE_CHECKING:
    from durableops.engine.in_hand import Held

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
type Answer = tuple[Written | None, Attachment | None]


def execute(
    database: Database,
    hand: Hand,
    write: FencedWrite,
    *,
    before: Callable[[Cursor], None] | None = None,
    also: Also | None = None,
) -> Written:
    """Commit the write and take over what it left. Raises FenceLost when the run is not ours any more.

    `before` and `also` run in the same transaction around the write, for what one statement cannot say.
    """
    freed, told = hand.frees(write), hand.told_to_others(write)
    if not (freed or told):
        return _execute(database, hand, write, lambda write: _once(database, write, before=before, also=also))[0]
    woken: list[UUID] = []

    def pass_on(cursor: Cursor, written: Written) -> None:
        if also is not None:
            also(cursor, written)
        woken[:] = queues.pass_on(cursor, freed)
        for effect_id in told:
            woken.extend(queues.wake_askers(cursor, effect_id))

    found = _execute(database, hand, write, lambda write: _once(database, write, before=before, also=pass_on))[0]
    if woken:
        bell.ring(len(woken))
    return found


def execute_and_claim(database: Database, hand: Hand, write: FencedWrite, held: Held) -> None:
    """Commit what ends the run and take the next one with the same commit. Raises FenceLost as `execute` does."""
    if hand.frees(write) or hand.told_to_others(write):
        execute(database, hand, write)
        return
    in_hand, lost_before = held.in_hand, hand.answers_lost
    with in_hand.claiming():
        attached = claiming.with_next(in_hand.taker())
        _, row = _execute(database, hand, write, lambda write: _once(database, write, attached=attached))
        held.following = claiming.claimed_with(row)
    if held.following is not None:
        in_hand.served([held.following])
    elif hand.answers_lost != lost_before:
        # The write whose answer was lost may have taken a run that nobody here knows of.
        in_hand.release_unheld(database, why="the answer to its claim was lost")


def _execute(
    database: Database, hand: Hand, write: FencedWrite, once: Callable[[FencedWrite], Answer]
) -> tuple[Written, Attachment | None]:
    """Do it once, if the answer does not get lost."""
    while True:
        attachment = None
        try:
            found, attachment = once(write)
        except ConnectionLost as lost:
            logger.warning("the answer to a commit of run %s was lost: %s", hand.run_id, lost)
            hand.answers_lost += 1
            found, write = _settle(database, write)
            if found is None:
                continue
        except errors.RestrictViolation as refused:
            conflict = _conflict(database, hand, write) if refused.diag.constraint_name == CONFLICT else None
            if conflict is not None:
                raise conflict from refused
            # The backstop behind the statement's own conditions; reaching it means that one of them is missing.
            raise FenceLost(f"run {hand.run_id}: {refused.diag.message_primary}") from refused
        except Exception:
            # The step will fail of it; outcomes of its calls must still be written then.
            hand.put_back(write)
            raise
        if found is None:
            hand.lost = True
            hand.put_back(write)
            raise FenceLost(
                f"run {hand.run_id} is not held under fence {write.fence} at checkpoint {write.seq} any more."
            )
        hand.written(write, found)
        if found.messages:
            relay_bell.ring()
        return found, attachment


def _conflict(database: Database, hand: Hand, write: FencedWrite) -> EffectConflict | None:
    """The conflict for which a write that posts messages was refused: another run took a slot a moment before."""
    found = conflict_of(database, hand, write) if write.messages else None
    if found is not None:
        hand.put_back(write)
    return found


def _once(
    database: Database,
    write: FencedWrite,
    *,
    before: Callable[[Cursor], None] | None = None,
    also: Also | None = None,
    attached: Attached | None = None,
) -> Answer:
    def alone(cursor: EngineCursor) -> Answer:
        [numbered] = cursor.numbered(1)
        fenced.send(numbered, write, attached)
        return fenced.answer(numbered)

    def together(cursor: EngineCursor) -> Answer:
        if before is not None:
            before(cursor)
        found = fenced.execute(cursor, write)
        if found is not None and also is not None:
            also(cursor, found)
        return found, None

    if before is None and also is None:
        committer = database.committer if isinstance(database, Pool) else None
        together_with_others = None if committer is None else committer.commit(write, attached)
        return together_with_others or database.retrying(alone)
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

"""Answering waits and waking the runs behind them. The run's row is locked before its waits, by everybody.

That order decides the race between an answer and a run that is just about to suspend: whoever comes second sees what
the first did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.states import TERMINAL
from runs.transitions import Cursor, TransitionRefused, fire

_LOCK = "SELECT r.state FROM runs_run r WHERE r.id = %s FOR NO KEY UPDATE"
_CLOSE = """
UPDATE runs_wait SET state = %(state)s, answer = %(answer)s, answered_by = %(by)s, answered_at = now(),
    inbound_event_id = %(event)s, due_at = NULL
WHERE id = %(wait)s AND state = 'open' RETURNING on_timeout"""
# Somebody was being asked whether to go on waiting for it.
_DROP_QUESTION = """
UPDATE runs_wait SET state = 'cancelled', answered_at = now()
WHERE run_id = %s AND state = 'open' AND clock = 'wait_timeout' AND correlation = %s"""


@dataclass(frozen=True, kw_only=True)
class Closing:
    """How a wait ends."""

    state: str
    cause: str
    """What the receipt of the resume will name."""
    detail: str
    answer: str | None = None
    """JSON text."""
    by: str = ""
    inbound_event: int | None = None


def close_wait(cursor: Cursor, *, run_id: UUID, wait_id: int, closing: Closing) -> bool:
    """Close an open wait and wake its run if it is waiting. False when the wait was closed already.

    Needs a transaction around it.
    """
    cursor.execute(_LOCK, [run_id])
    row = cursor.fetchone()
    if row is None or row[0] in TERMINAL:
        return False
    cursor.execute(
        _CLOSE,
        {
            "state": closing.state,
            "answer": closing.answer,
            "by": closing.by,
            "event": closing.inbound_event,
            "wait": wait_id,
        },
    )
    closed = cursor.fetchone()
    if closed is None:
        return False
    if closed[0] == "asked":
        cursor.execute(_DROP_QUESTION, [run_id, str(wait_id)])
    if row[0] == "waiting":
        wake(cursor, run_id, cause=closing.cause, detail=closing.detail)
    return True


def wake(cursor: Cursor, run_id: UUID, *, cause: str, detail: str, data: dict[str, Any] | None = None) -> bool:
    """Make a waiting run claimable. False when it is not waiting."""
    try:
        fire(
            "wake",
            run_id,
            using=cursor,
            reason=detail,
            data={"cause": cause, **(data or {})},
            sets={"wake_cause": cause, "wake_detail": detail, "woken_at": db_now(cursor), "lost_at": None},
        )
    except TransitionRefused:
        return False
    return True


def db_now(cursor: Cursor) -> Any:
    """The database's clock, in this transaction."""
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]

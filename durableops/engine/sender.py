"""Whether anybody may still be sending an effect that is in doubt: then nobody can say that it did not happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from durableops.engine.waking import db_now
from runs.models import Doubt, IdempotencyRecord
from runs.transitions import Cursor

TOLD_BY_SENDER = ("call_timeout", "call_failed", "window_closed")
"""Causes of doubts that their sender stated itself: its call is over."""
UNKNOWN = timedelta(hours=1)
"""Of effects that were intended before this was recorded."""

# Fences grow with the claims: read from the newest event backwards, this ends at the first that is old enough.
_SENDER = """
SELECT w.number, w.host, w.pid, w.gone FROM runs_event v JOIN runs_worker w ON w.id = v.worker_id
WHERE v.run_id = %s AND v.event = 'claim' AND v.fence <= %s ORDER BY v.id DESC LIMIT 1"""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The worker that sent an effect, or may have."""

    number: int
    host: str
    pid: int
    gone: bool
    """Whether its processes are known not to exist any more."""


def sender_of(cursor: Cursor, effect: IdempotencyRecord) -> Sender | None:
    """Who had the run when the effect was sent; None where that was not recorded."""
    cursor.execute(_SENDER, [effect.run_id, effect.fence])
    row = cursor.fetchone()
    return None if row is None else Sender(number=row[0], host=row[1], pid=row[2], gone=row[3])


def quiet_at(effect: IdempotencyRecord) -> datetime:
    """The instant after which nobody can be sending it or waiting for its answer, whoever lives."""
    return effect.quiet_after or (effect.send_before or effect.intended_at) + UNKNOWN


def possible_at(doubt: Doubt, how: str) -> datetime | None:
    """From when on it can be settled like this, whoever lives."""
    return quiet_at(doubt.effect) if how == "did_not" else sendable_until(doubt)


def whether_quiet(cursor: Cursor, effect: IdempotencyRecord) -> str:
    """Why somebody may still be sending it, in words; empty when nobody can.

    Nobody can once its time to be sent and the time of its answer have passed on the database's clock, or once the
    processes of its sender are known not to exist any more.
    """
    return _until(cursor, effect, quiet_at(effect), "send it or wait for its answer")


def whether_unsendable(cursor: Cursor, doubt: Doubt) -> str:
    """Why somebody may still put its effect on the wire, in words; empty when nobody can.

    Until then nobody says anything of it: a sender that stands still, and was left for dead, would go on and send what
    somebody has settled meanwhile. One that said itself that it has no answer sends nothing more.
    """
    until = sendable_until(doubt)
    return "" if until is None else _until(cursor, doubt.effect, until, "still send it")


def sendable_until(doubt: Doubt) -> datetime | None:
    """Until when its sender may put it on the wire, should it live; None where the sender is done with it."""
    return None if doubt.cause in TOLD_BY_SENDER else doubt.effect.send_before


def _until(cursor: Cursor, effect: IdempotencyRecord, until: datetime, may: str) -> str:
    now = db_now(cursor)
    if now > until:
        return ""
    sender = sender_of(cursor, effect)
    if sender is not None and sender.gone:
        return ""
    who = f"worker {sender.number}" if sender is not None else "its sender"
    return f"{who} may {may} for another {(until - now).total_seconds():.0f} s"

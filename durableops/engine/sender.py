"""Whether anybody may still be sending an effect that is in doubt: then nobody can say that it did not happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from durableops.engine.waking import db_now
from runs.models import IdempotencyRecord
from runs.transitions import Cursor

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


def whether_quiet(cursor: Cursor, effect: IdempotencyRecord) -> str:
    """Why somebody may still be sending it, in words; empty when nobody can.

    Nobody can once its time to be sent and the time of its answer have passed on the database's clock, or once the
    processes of its sender are known not to exist any more.
    """
    until, now = quiet_at(effect), db_now(cursor)
    if now > until:
        return ""
    sender = sender_of(cursor, effect)
    if sender is not None and sender.gone:
        return ""
    left = (until - now).total_seconds()
    who = f"worker {sender.number}" if sender is not None else "its sender"
    return f"{who} may send it or wait for its answer for another {left:.0f} s"

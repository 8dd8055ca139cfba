"""Whether anybody may still be sending an effect that is in doubt: then nobody can say that it did not happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durableops.engine.waking import db_now
from runs.models import IdempotencyRecord
from runs.transitions import Cursor

UNKNOWN = timedelta(hours=1)
"""Of effects that were intended before this was recorded."""

_SENDER = """
SELECT w.gone, w.number FROM runs_event v JOIN runs_worker w ON w.id = v.worker_id
WHERE v.run_id = %s AND v.event = 'claim' AND v.fence <= %s ORDER BY v.fence DESC LIMIT 1"""


def whether_quiet(cursor: Cursor, effect: IdempotencyRecord) -> str:
    """Why somebody may still be sending it, in words; empty when nobody can.

    Nobody can once its time to be sent and the time of its answer have passed on the database's clock, or once the
    processes of its sender are known not to exist any more.
    """
    until: Any = effect.quiet_after or (effect.send_before or effect.intended_at) + UNKNOWN
    now = db_now(cursor)
    if now > until:
        return ""
    cursor.execute(_SENDER, [effect.run_id, effect.fence])
    sender = cursor.fetchone()
    if sender is not None and sender[0]:
        return ""
    left = (until - now).total_seconds()
    who = f"worker {sender[1]}" if sender is not None else "its sender"
    return f"{who} may send it or wait for its answer for another {left:.0f} s"

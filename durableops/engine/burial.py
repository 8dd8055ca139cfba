"""What becomes of the runs of a worker that has gone. Level-triggered: whatever was missed is found the next time."""

from __future__ import annotations

from uuid import UUID

from durableops.engine import blocks
from durableops.engine.family import cancel_children, close_waits
from durableops.engine.queues import leave_effects
from runs.transitions import Cursor, Fired, fire_many

BATCH = 500
SECOND_LOSS_DELAY_SECONDS = 2.0
"""A run that loses a second worker in a row may be what kills them: it comes back more slowly."""

# Ended by its own supervisor in an orderly way: that run has killed nobody.
_STOPPED = "EXISTS (SELECT 1 FROM runs_worker w WHERE w.id = {run}.worker_id AND w.ended_why LIKE 'stopped%%')"
_OF_ENDED = (
    "r.state = 'running' AND r.worker_id IN (SELECT w.id FROM runs_worker w WHERE w.ended_at IS NOT NULL) AND {only}"
    " ORDER BY r.id LIMIT 500 FOR NO KEY UPDATE OF r SKIP LOCKED"
)
_COMMON = (
    "lost_at = (SELECT w.renewed_at FROM runs_worker w WHERE w.id = b.worker_id), woken_at = now(),"
    " wake_detail = (SELECT w.ended_why FROM runs_worker w WHERE w.id = b.worker_id)"
)
_LOST = f"{_COMMON}, wake_cause = 'worker_lost', recoveries = r.recoveries + 1"
_DATA = (
    "jsonb_build_object('recoveries', b.recoveries + 1,"
    " 'why', (SELECT w.ended_why FROM runs_worker w WHERE w.id = b.worker_id))"
)
_GIVEN_UP = (
    f"{_LOST}, error_class = 'WorkerLost', error_fingerprint = 'worker_lost', error_message = format("
    "'step %%s lost its worker %%s times in a row without a commit in between;"
    " the run is stopped before it takes more.',"
    " quote_literal(r.step_id), r.recoveries + 1)"
)


def declare_ended(cursor: Cursor, worker_id: UUID, *, why: str, counter: int | None = None, gone: bool = False) -> bool:
    """End a lease. With `counter`, only if it has not moved since it was looked at: a living worker is spared.

    `gone` says that its processes are known not to exist any more, and is noted of one that had ended before, too.
    """
    cursor.execute(
        "UPDATE runs_worker SET gone = true WHERE id = %(id)s AND %(gone)s AND NOT gone",
        {"id": worker_id, "gone": gone},
    )
    cursor.execute(
        "UPDATE runs_worker SET ended_at = now(), ended_why = %(why)s WHERE id = %(id)s AND ended_at IS NULL"
        " AND (%(counter)s::bigint IS NULL OR counter = %(counter)s) RETURNING number",
        {"id": worker_id, "why": why[:200], "counter": counter},
    )
    return cursor.fetchone() is not None


def release_runs(cursor: Cursor) -> list[Fired]:
    """Move a batch of the running runs whose worker has ended: back to the queue, or to where they must end.

    Needs a transaction. What another cleaner has locked is left to it.
    """
    found = _move(
        cursor, "stop", "r.cancel_requested", sets="woken_at = now()", reason="cancelled; its worker has gone"
    )
    found += _move(
        cursor,
        "give_up",
        f"r.recoveries >= r.max_recoveries AND NOT {_STOPPED.format(run='r')}",
        sets=_GIVEN_UP,
        reason="it lost its worker too often in a row",
    )
    found += _move(cursor, "lose_worker", _STOPPED.format(run="r"), sets=f"{_COMMON}, wake_cause = 'worker_stopped'")
    found += _move(cursor, "lose_worker", "r.recoveries = 0", sets=_LOST)
    found += _move(cursor, "lose_worker", "r.recoveries > 0", sets=_LOST, delay=SECOND_LOSS_DELAY_SECONDS)
    ended = [fired for fired in found if fired.to_state != "queued"]
    close_waits(cursor, [fired.run_id for fired in ended])
    back = [fired.run_id for fired in found if fired.to_state == "queued"]
    leave_effects(
        cursor, back, ended=False, cause="worker_lost", because="its worker was lost while it was on its way."
    )
    for fired in ended:
        cancel_children(cursor, fired.run_id, actor="upkeep", reason="its parent ended")
    # Last, since runs are locked before budgets.
    blocks.return_ended(cursor)
    return found


def _move(
    cursor: Cursor, event: str, only: str, *, sets: str, reason: str = "its worker has gone", delay: float = 0.0
) -> list[Fired]:
    return fire_many(
        event, cursor, pick=_OF_ENDED.format(only=only), params={"delay": delay}, sets=sets, reason=reason, data=_DATA
    )

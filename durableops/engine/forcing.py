"""Taking a run away from a step that does not stop: its end is written for it, and its own late word is refused."""

from __future__ import annotations

import logging
from uuid import UUID

from psycopg import errors

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell, budgets, questions
from durableops.engine.checks import DeadlinePassed
from durableops.engine.database import Database
from durableops.engine.endings import deadline, deadline_cause
from durableops.engine.family import cancel_children, close_waits, nudge_parent
from durableops.engine.hand import Hand
from durableops.engine.queues import leave_effects
from durableops.engine.spent import BudgetSpent
from durableops.errors import ControlSignal, FenceLost, RunCancelled, RunPaused
from runs.states import TRANSITIONS
from runs.transitions import Cursor, TransitionRefused, fire, record_event

logger = logging.getLogger("durableops.forcing")

# The step may be inside a transaction that holds the run's row; then only the end of its process frees it.
LOCK_PATIENCE = "SET LOCAL lock_timeout = '1s'"


def force_off(database: Database, hand: Hand, why: ControlSignal) -> bool:
    """End or hand back the run, under its fence. False when its row is locked or moved: try again, or end the process.

    Raises ConnectionLost.
    """
    try:
        with database.transaction() as cursor:
            cursor.execute(LOCK_PATIENCE)
            _tell(cursor, hand, why)
            ended = _write(cursor, hand, why)
    except (TransitionRefused, errors.LockNotAvailable) as refused:
        logger.warning("run %s could not be taken from step %r: %s", hand.run_id, hand.step.id, refused)
        return False
    hand.lost = True
    if ended:
        nudge_parent(database, hand.run_id)
    else:
        bell.ring()
    return True


def _tell(cursor: Cursor, hand: Hand, why: ControlSignal) -> None:
    grace = get_conf().step_grace_seconds
    record_event(
        cursor,
        hand.run_id,
        "step_did_not_stop",
        reason=f"step {hand.step.id!r} did not stop within {grace:g} s: {why} The run was taken from it.",
        step_id=hand.step.id,
        attempt=hand.attempt,
        fence=hand.fence,
        worker_id=hand.worker_id,
        data={"entered_seconds_ago": round(monotonic() - hand.entered_at, 3), "grace_seconds": grace},
    )


def _write(cursor: Cursor, hand: Hand, why: ControlSignal) -> bool:
    """Returns whether the run has ended."""
    run, fence, reason = hand.run_id, hand.fence, str(why)
    match why:
        case RunCancelled():
            fire("stop", run, using=cursor, fence=fence, actor="engine", reason=reason)
        case DeadlinePassed():
            event, firing = deadline(hand)
            if event == "hand_back":
                wake = dict(zip(("wake_cause", "wake_detail"), deadline_cause(firing), strict=True))
                fire(event, run, using=cursor, fence=fence, actor="engine", reason=reason, sets=wake)
                leave_effects(cursor, [run], ended=False, cause="worker_lost", because="its step did not stop.")
                return False
            sets = {"error_class": "DeadlinePassed", "error_message": reason, "error_fingerprint": "run_deadline"}
            fire(event, run, using=cursor, fence=fence, actor="engine", reason=reason, data=firing.as_data(),
                 sets=sets)  # fmt: skip
        case RunPaused():
            wake = {"wake_cause": "pause", "wake_detail": reason}
            fire("hand_back", run, using=cursor, fence=fence, actor="engine", reason=reason, sets=wake)
            leave_effects(cursor, [run], ended=False, cause="worker_lost", because="its step did not stop.")
            return False
        case BudgetSpent():
            # A step that does not stop has no say in more: its run ends, or a person is asked, by the budget's policy.
            event = {"cancel": "stop", "fail": "fail", "ask": "ask"}.get(why.row.policy, "exhaust")
            told = budgets.firing(hand, why, next_state=TRANSITIONS[event].target).as_data()
            sets = {"error_class": "BudgetSpent", "error_message": reason, "error_fingerprint": "budget"}
            fire(event, run, using=cursor, fence=fence, actor="engine", reason=reason, data=told, sets=sets)
            if event == "ask":
                questions.put(cursor, run, told, was="running")
                leave_effects(cursor, [run], ended=False, cause="worker_lost", because="its step did not stop.")
                return False
        case FenceLost():
            return False
        case _:
            raise AssertionError(f"no step is forced off for {why!r}")
    _end_family(cursor, run, reason)
    return True


def _end_family(cursor: Cursor, run: UUID, reason: str) -> None:
    close_waits(cursor, [run])
    cancel_children(cursor, run, actor="engine", reason=f"its parent ended: {reason}")

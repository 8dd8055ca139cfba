"""What is looked at before each step, page and intent: cancel, pause, deadline, step timeout, a worker that stops."""

from __future__ import annotations

from durableops.clock import monotonic
from durableops.engine.hand import Hand
from durableops.engine.ops import Commit, Logic
from durableops.errors import ControlSignal, FenceLost, RunCancelled, RunPaused, StepTimeout


class DeadlinePassed(ControlSignal):
    """The run's deadline has come."""

    code = "signal.deadline"


class WorkerStopping(ControlSignal):
    """This process is asked to stop and its grace is half over."""

    code = "signal.worker_stopping"


def stop_reason(hand: Hand) -> ControlSignal | None:
    """Why the step may not go on, if it may not."""
    now = monotonic()
    if hand.lost:
        return FenceLost(f"run {hand.run_id} is owned by a newer claim.")
    if hand.leaving is not None:
        return hand.leaving
    if hand.cancel_requested:
        return RunCancelled("the run was cancelled.")
    if hand.deadline is not None and now > hand.deadline:
        return DeadlinePassed("the run's deadline has passed.")
    limit = hand.step_deadline
    if limit is not None and now > limit:
        return StepTimeout(f"step {hand.step.id!r} ran longer than {hand.step.timeout:g} s.")
    if hand.pause_requested:
        return RunPaused("the run was paused.")
    leave_at = hand.stopping.leave_at
    if leave_at is not None and now > leave_at:
        return WorkerStopping("the worker is asked to stop.")
    return None


def check_may_go_on(hand: Hand) -> None:
    """Leave the step's code if something stops it. Called by every `run.` method."""
    reason = stop_reason(hand)
    if reason is not None:
        hand.leaving = reason
        raise reason


def flush_if_stale(hand: Hand) -> Logic[None]:
    """Commit log lines and progress that have waited too long for something to travel with."""
    if hand.is_stale:
        yield Commit(hand.write())

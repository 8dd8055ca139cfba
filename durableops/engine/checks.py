"""What is looked at before each step, page and intent: cancel, pause, deadline, step timeout, a worker that stops."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from durableops.authoring.definitions import StepDefinition
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import step_timeouts
from durableops.engine.claim import others_wait
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Commit, Logic
from durableops.engine.spent import BudgetSpent
from durableops.errors import ControlSignal, FenceLost, RunCancelled, RunPaused, StepTimeout

ISOLATION = {
    True: "its step asked for a process of its own",
    False: "its step needs no process of its own",
}
"""Why a run goes to a worker of the other kind."""


class DeadlinePassed(ControlSignal):
    """The run's deadline has come."""

    code = "signal.deadline"


class WorkerStopping(ControlSignal):
    """This process is asked to stop and its grace is half over."""

    code = "signal.worker_stopping"


class HandBack(ControlSignal):
    """The run goes back to the queue without having done anything wrong."""

    code = "signal.hand_back"

    def __init__(
        self, cause: str, detail: str, *, isolated: bool | None = None, resource: str | None = None,
        delay: float = 0.0, gate: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.cause = cause
        self.isolated = isolated
        """Whether the run wants a process of its own from here on; None says nothing about it."""
        self.resource = resource
        """What it uses from here on that all tenants share; None says nothing about it."""
        self.delay = delay
        """Seconds until it may be taken again."""
        self.gate = gate or {}
        """What held it back, for its timeline."""


def wants_other_place(hand: Hand, step: StepDefinition) -> HandBack | None:
    """Whether this step needs another kind of process, or a place under a cap that only a claim can give."""
    isolated = hand.definition.is_isolated(step.id)
    resource = step.uses if step.uses != hand.resource else None
    if hand.held is not None and hand.held.in_hand.isolated != isolated:
        return HandBack("isolation", ISOLATION[isolated], isolated=isolated, resource=resource)
    if resource:
        return HandBack("resource", f"its step uses {resource!r}, which is shared", resource=resource)
    return None


def give_way(hand: Hand) -> Logic[ControlSignal | None]:
    """Between steps and pages: hand back when this process stops, or when the slice is over and others wait."""
    if hand.stopping.since is not None:
        return HandBack("worker_stopped", "its worker was asked to stop")
    if (elsewhere := wants_other_place(hand, hand.step)) is not None:
        return elsewhere
    # A run in hand takes at least one step: were the claim alone to eat the slice, two runs would only change places.
    if hand.head_seq > hand.claimed.head_seq and monotonic() - hand.taken_at > get_conf().slice_seconds:
        isolated = hand.held is not None and hand.held.in_hand.isolated
        tenant_id = hand.claimed.tenant_id
        others = yield Ask(lambda database: others_wait(database, tenant_id=tenant_id, isolated=isolated))
        if others:
            return HandBack("slice", "others were waiting")
        hand.taken_at = monotonic()
    return None


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
        return StepTimeout(f"step {hand.step.id!r} ran longer than {hand.step.longest:g} s.")
    computing = hand.compute
    if computing is not None and computing.seconds is not None and now > hand.entered_at + computing.seconds:
        return BudgetSpent(computing.row, Decimal(0))
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
    step_timeouts.tell_extension(hand)


def flush_if_stale(hand: Hand) -> Logic[None]:
    """Commit log lines and progress that have waited too long for something to travel with."""
    if hand.is_stale:
        yield Commit(hand.write())

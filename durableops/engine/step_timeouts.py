"""The clock of a step's entry: what a firing says, and the one extension that a step may have."""

from __future__ import annotations

from durableops.clock import monotonic
from durableops.engine.hand import Hand
from durableops.limits.clocks import Clock, Firing, Phase


def firing(hand: Hand, *, limit: float | None, next_state: str, trigger: str = "") -> Firing:
    """The record of a step timeout. What the step was doing when the clock came says whose fault it is."""
    tool = hand.tool_called_at(hand.entered_at + (limit or 0.0))
    return Firing(
        clock=Clock.STEP_TIMEOUT,
        limit_seconds=limit,
        trigger=trigger or f"attempt {hand.attempt} of step {hand.step.id!r} was still running",
        elapsed_seconds=monotonic() - hand.entered_at,
        phase=Phase.CALLING if tool else Phase.COMPUTING,
        next_state=next_state,
        whom=f"tool {tool}" if tool else "",
    )


def tell_extension(hand: Hand) -> None:
    """Say once that the clock has come of a step that may take once more as long."""
    step = hand.step
    if step.on_timeout != "extend" or step.timeout is None or hand.extended:
        return
    if monotonic() > hand.entered_at + step.timeout:
        hand.extended = True
        fired = firing(hand, limit=step.timeout, next_state="running")
        hand.event("step_timeout", reason=f"{fired.trigger} after {step.timeout:g} s; it may take once more as long.",
                   data=fired.as_data())  # fmt: skip

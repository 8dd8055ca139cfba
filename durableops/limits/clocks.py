"""The clocks that can fire and what each firing means: the table of clock × phase, and the record of a firing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Clock(StrEnum):
    RUN_DEADLINE = "run_deadline"
    QUEUE_WAIT = "queue_wait"
    STEP_TIMEOUT = "step_timeout"
    CALL_TIMEOUT = "call_timeout"
    WAIT_TIMEOUT = "wait_timeout"
    BUDGET = "budget"
    DOUBT = "doubt"


class Phase(StrEnum):
    QUEUED = "queued"
    COMPUTING = "computing"
    CALLING = "calling"
    WAITING_PERSON = "waiting_person"
    WAITING_SYSTEM = "waiting_system"
    IN_DOUBT = "in_doubt"
    IN_REVIEW = "in_review"
    SLEEPING = "sleeping"


class Cause(StrEnum):
    SLOW_DEPENDENCY = "slow_dependency"
    UNRESPONSIVE_USER = "unresponsive_user"
    UNRESPONSIVE_SYSTEM = "unresponsive_system"
    OVERLOAD = "overload"
    BUDGET_SPENT = "budget_spent"
    DESIGN_ERROR = "design_error"


# Read by phase: what the run was doing when the clock fired says whom to look at.
_BY_PHASE: dict[Phase, Cause] = {
    Phase.QUEUED: Cause.OVERLOAD,
    Phase.COMPUTING: Cause.DESIGN_ERROR,
    Phase.CALLING: Cause.SLOW_DEPENDENCY,
    Phase.WAITING_PERSON: Cause.UNRESPONSIVE_USER,
    Phase.WAITING_SYSTEM: Cause.UNRESPONSIVE_SYSTEM,
    Phase.IN_DOUBT: Cause.UNRESPONSIVE_USER,
    Phase.IN_REVIEW: Cause.UNRESPONSIVE_USER,
    Phase.SLEEPING: Cause.DESIGN_ERROR,
}

_WAIT_PHASES: dict[str, Phase] = {
    "approval": Phase.WAITING_PERSON,
    "file": Phase.WAITING_PERSON,
    "event": Phase.WAITING_SYSTEM,
    "poll": Phase.WAITING_SYSTEM,
    "children": Phase.WAITING_SYSTEM,
    "turn": Phase.WAITING_SYSTEM,
    "time": Phase.SLEEPING,
}


def cause_of(clock: Clock, phase: Phase) -> Cause:
    """The cause class of a firing."""
    return Cause.BUDGET_SPENT if clock is Clock.BUDGET else _BY_PHASE[phase]


def phase_of_wait(kind: str) -> Phase:
    """What a run that waits in this way is doing."""
    return _WAIT_PHASES[kind]


@dataclass(frozen=True, kw_only=True)
class Firing:
    """One clock that fired, as it is recorded."""

    clock: Clock
    limit_seconds: float | None
    trigger: str
    """The condition, in words with the names of things."""
    elapsed_seconds: float
    phase: Phase
    next_state: str

    def as_data(self) -> dict[str, Any]:
        return {
            "clock": self.clock,
            "limit_seconds": self.limit_seconds,
            "trigger": self.trigger,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "phase": self.phase,
            "cause": cause_of(self.clock, self.phase),
            "next_state": self.next_state,
        }

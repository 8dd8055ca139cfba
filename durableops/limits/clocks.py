"""The clocks that can fire and what each firing means: policies, the table of clock × phase, the record of a firing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, get_args

from durableops.authoring import policies


class Clock(StrEnum):
    RUN_DEADLINE = "run_deadline"
    QUEUE_WAIT = "queue_wait"
    STEP_TIMEOUT = "step_timeout"
    CALL_TIMEOUT = "call_timeout"
    WAIT_TIMEOUT = "wait_timeout"
    BUDGET = "budget"
    DOUBT = "doubt"
    APPROVAL = "approval"


class Phase(StrEnum):
    """What the run was doing when the clock fired."""

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


# docs/operations.md shows this table. A pair that is not in it cannot happen.
CAUSES: dict[Clock, dict[Phase, Cause]] = {
    Clock.RUN_DEADLINE: {
        Phase.QUEUED: Cause.OVERLOAD,
        Phase.COMPUTING: Cause.DESIGN_ERROR,
        Phase.CALLING: Cause.SLOW_DEPENDENCY,
        Phase.WAITING_PERSON: Cause.UNRESPONSIVE_USER,
        Phase.WAITING_SYSTEM: Cause.UNRESPONSIVE_SYSTEM,
        Phase.IN_DOUBT: Cause.UNRESPONSIVE_USER,
        Phase.IN_REVIEW: Cause.UNRESPONSIVE_USER,
        Phase.SLEEPING: Cause.DESIGN_ERROR,
    },
    Clock.QUEUE_WAIT: {Phase.QUEUED: Cause.OVERLOAD},
    Clock.STEP_TIMEOUT: {Phase.COMPUTING: Cause.DESIGN_ERROR, Phase.CALLING: Cause.SLOW_DEPENDENCY},
    Clock.CALL_TIMEOUT: {Phase.CALLING: Cause.SLOW_DEPENDENCY},
    Clock.WAIT_TIMEOUT: {
        Phase.WAITING_PERSON: Cause.UNRESPONSIVE_USER,
        Phase.WAITING_SYSTEM: Cause.UNRESPONSIVE_SYSTEM,
        Phase.SLEEPING: Cause.DESIGN_ERROR,
    },
    Clock.BUDGET: {Phase.COMPUTING: Cause.BUDGET_SPENT, Phase.CALLING: Cause.BUDGET_SPENT},
    Clock.DOUBT: {Phase.IN_DOUBT: Cause.UNRESPONSIVE_USER},
    Clock.APPROVAL: {Phase.WAITING_PERSON: Cause.UNRESPONSIVE_USER},
}

POLICIES: dict[Clock, tuple[str, ...]] = {
    Clock.RUN_DEADLINE: get_args(policies.OnDeadline),
    Clock.QUEUE_WAIT: get_args(policies.OnQueueWait),
    Clock.STEP_TIMEOUT: get_args(policies.OnStepTimeout),
    Clock.CALL_TIMEOUT: get_args(policies.OnCallTimeout),
    Clock.WAIT_TIMEOUT: get_args(policies.OnTimeout),
    Clock.BUDGET: get_args(policies.OnBudget),
}
"""What an author may choose for each clock; the first is what holds where nothing was said."""

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
    """The cause class of a firing. Raises KeyError for a clock that cannot fire in that phase."""
    return CAUSES[clock][phase]


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
    whom: str = ""
    """Who or what was waited for: `tool crm.push`, `event parcel-arrived`, `approval delivery`; "" for nobody."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else is worth knowing of this clock."""

    def as_data(self) -> dict[str, Any]:
        return {
            "clock": str(self.clock),
            "limit_seconds": self.limit_seconds,
            "trigger": self.trigger,
            "elapsed_seconds": round(self.elapsed_seconds, 3),
            "phase": str(self.phase),
            "cause": str(cause_of(self.clock, self.phase)),
            "next_state": self.next_state,
            **({"whom": self.whom} if self.whom else {}),
            **self.more,
        }

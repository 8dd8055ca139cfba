"""The cells of the drill `clocks`: each clock × phase × policy there is, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass

from durableops.limits.clocks import CAUSES, POLICIES, Clock, Phase

IN_HAND = (Phase.COMPUTING, Phase.CALLING)
PEOPLE = {Phase.IN_DOUBT: "in_doubt", Phase.IN_REVIEW: "in_review"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One clock that comes while a run does something, and what its policy says then."""

    clock: Clock
    phase: Phase
    policy: str
    event: str
    """The event that tells of the firing."""
    next_state: str
    """What it says comes next."""
    state: str
    """The state of the run once the policy was met."""

    def __str__(self) -> str:
        return f"{self.clock} {self.phase} {self.policy}"

    @property
    def cause(self) -> str:
        """What the table of causes says."""
        return str(CAUSES[self.clock][self.phase])

    @property
    def workflow(self) -> str:
        return f"every-clock.{self.clock}.{self.policy}"


def cells() -> list[Cell]:
    """Every one there is, in the order of the tables."""
    return [
        _cell(clock, phase, policy)
        for clock, policies in POLICIES.items()
        for phase in CAUSES[clock]
        for policy in policies
    ]


def _cell(clock: Clock, phase: Phase, policy: str) -> Cell:
    event, next_state, state = _EXPECTED[clock](phase, policy)
    return Cell(clock=clock, phase=phase, policy=policy, event=event, next_state=next_state, state=state)


def _deadline(phase: Phase, policy: str) -> tuple[str, str, str]:
    ends = {"fail": ("time_out", "timed_out"), "cancel": ("stop" if phase in IN_HAND else "cancel", "cancelled")}
    if policy in ends:
        event, state = ends[policy]
        return event, state, state
    parked = phase in (Phase.WAITING_PERSON, Phase.WAITING_SYSTEM, Phase.SLEEPING)
    at = PEOPLE.get(phase, "waiting" if parked else "queued")
    if policy == "ask" and at == "queued":
        return "ask", "waiting", "waiting"
    return "run_deadline", at, at


def _queue(phase: Phase, policy: str) -> tuple[str, str, str]:
    return {
        "fail": ("time_out", "timed_out", "timed_out"),
        "cancel": ("cancel", "cancelled", "cancelled"),
        "ask": ("ask", "waiting", "waiting"),
    }.get(policy, ("queue_wait", "queued", "queued"))


def _step(phase: Phase, policy: str) -> tuple[str, str, str]:
    after = {
        "retry": ("queued", "queued"),
        "fail": ("failed", "failed"),
        "cancel": ("cancelled", "cancelled"),
        "continue": ("succeeded", "succeeded"),
        "extend": ("running", "succeeded"),
        "ask": ("waiting", "waiting"),
    }
    return ("step_timeout", *after[policy])


def _call(phase: Phase, policy: str) -> tuple[str, str, str]:
    return {
        "retry": ("call_timeout", "sent again", "succeeded"),
        "fail": ("call_timeout", "step fails", "failed"),
        "cancel": ("call_timeout", "cancelled", "cancelled"),
        "continue": ("call_timeout", "went on with its default", "succeeded"),
        "ask": ("ask", "waiting", "waiting"),
    }[policy]


def _wait(phase: Phase, policy: str) -> tuple[str, str, str]:
    after = {"cancel": "cancelled", "fail": "timed_out", "extend": "waiting", "ask": "waiting"}
    state = after.get(policy, "queued")
    return "wait_timeout", state, state


def _budget(phase: Phase, policy: str) -> tuple[str, str, str]:
    return {
        "exhaust": ("exhaust", "exhausted", "exhausted"),
        "fail": ("fail", "failed", "failed"),
        "cancel": ("stop", "cancelled", "cancelled"),
        "extend": ("budget_spent", "running", "succeeded"),
        "ask": ("ask", "waiting", "waiting"),
    }[policy]


_EXPECTED = {
    Clock.RUN_DEADLINE: _deadline,
    Clock.QUEUE_WAIT: _queue,
    Clock.STEP_TIMEOUT: _step,
    Clock.CALL_TIMEOUT: _call,
    Clock.WAIT_TIMEOUT: _wait,
    Clock.BUDGET: _budget,
}

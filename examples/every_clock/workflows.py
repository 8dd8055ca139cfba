"""A workflow for each clock and policy; what a run does when its clock comes, its input says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durableops import Budget, Call, Retry, Run, State, step, tool, workflow
from durableops.limits.clocks import POLICIES, Clock
from examples.every_clock.passing import let_it_come

HOUR = timedelta(hours=1)
ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, first_delay=0.0, jitter=0.0)


class Doing(State):
    """What the run does when its clock comes."""

    phase: str


@tool(safety="read", name="every-clock.slow", timeout=100_000)
def slow(call: Call, *, seconds: float) -> str:
    """A call during which so much time passes."""
    let_it_come(call.run_id, seconds)
    return "late"


@tool(safety="read", name="every-clock.quick")
def quick(call: Call) -> str:
    """A call that costs one call."""
    return "there"


@tool(safety="keyed", name="every-clock.lost", retry=TWICE, key_window=timedelta(microseconds=1))
def lost(call: Call) -> str:
    """A call of which nobody knows whether it happened, and which the other side has forgotten."""
    raise ConnectionError("the answer was lost")


def _act(run: Run, *, seconds: float) -> str:
    """Do what the input says; in hand, the time passes once."""
    match run.state.phase:
        case "computing" if run.entry == 1:
            let_it_come(run.id, seconds)
            run.progress(1)
        case "calling" if run.entry == 1:
            run.call(slow, seconds=seconds)
            run.progress(1)
        case "waiting_person":
            run.approval("nobody")
        case "waiting_system":
            run.wait_for("never")
        case "sleeping":
            run.sleep(HOUR)
        case "in_doubt":
            run.call(lost, resource=run.id)
    return "itself"


def _declare(
    clock: Clock, policy: str, function: Any, *, of_step: dict[str, Any] | None = None, **options: Any
) -> None:
    steps = {"act": step(id="act", **(of_step or {}))(function)}
    workflow(name=f"every-clock.{clock}.{policy}", version=1, state=Doing, **options)(type("EveryClock", (), steps))


def _default(policy: str) -> dict[str, Any]:
    return {"default": "instead"} if policy == "continue" else {}


for _policy in POLICIES[Clock.RUN_DEADLINE]:
    _declare(Clock.RUN_DEADLINE, _policy, lambda run: _act(run, seconds=3700), of_step={"timeout": None},
             deadline=HOUR, on_deadline=_policy)  # fmt: skip
for _policy in POLICIES[Clock.QUEUE_WAIT]:
    _declare(Clock.QUEUE_WAIT, _policy, lambda run: None, queue_wait=HOUR, on_queue_wait=_policy)
for _policy in POLICIES[Clock.STEP_TIMEOUT]:
    _declare(Clock.STEP_TIMEOUT, _policy, lambda run: _act(run, seconds=70),
             of_step={"timeout": 60.0, "on_timeout": _policy, "retry": TWICE, **_default(_policy)})  # fmt: skip


def _call_of(policy: Any) -> Any:
    @tool(safety="read", name=f"every-clock.silent-{policy}", retry=TWICE, on_timeout=policy, **_default(policy))
    def silent(call: Call) -> str:
        if call.attempt == 1:
            raise TimeoutError("no answer")
        return "itself"

    return lambda run: run.call(silent)


for _policy in POLICIES[Clock.CALL_TIMEOUT]:
    _declare(Clock.CALL_TIMEOUT, _policy, _call_of(_policy), of_step={"retry": ONCE})


def _wait_of(policy: Any) -> Any:
    def act(run: Run) -> Any:
        if run.state.phase == "waiting_person":
            return run.approval("nobody", timeout=HOUR, on_timeout=policy)
        if run.state.phase == "sleeping":
            run.sleep(2 * HOUR)
            return None
        return run.wait_for("never", timeout=HOUR, on_timeout=policy)

    return act


for _policy in POLICIES[Clock.WAIT_TIMEOUT]:
    _declare(Clock.WAIT_TIMEOUT, _policy, _wait_of(_policy))


def _spends(run: Run) -> None:
    if run.state.phase == "calling":
        run.call(quick, key="1")
        run.call(quick, key="2")
        return
    with run.spend(tokens=10):
        pass
    with run.spend(tokens=10):
        pass


for _policy in POLICIES[Clock.BUDGET]:
    _declare(Clock.BUDGET, _policy, _spends, budget=Budget(tokens=15, calls=1), on_budget=_policy)

"""Clocks of a run in hand: each policy of steps, calls and waits, and what the run was doing when the clock came."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import Retry, State, step, tool, workflow
from durableops.engine import commands, hard_timeouts
from durableops.engine.watch import Watched
from runs.models import Checkpoint, Run, RunEvent, Wait
from tests.factories import make_due, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
AT_ONCE = Retry(max_attempts=2, first_delay=0.0, jitter=0.0)
HOUR = timedelta(hours=1)


class Counting(State):
    n: int = 0


def two_steps(function, *, of_step: dict[str, Any] | None = None, **options):
    named = {"a": step(id="a", **({"retry": AT_ONCE} | (of_step or {})))(function), "b": step(id="b")(last)}
    workflow(name="two", version=1, state=Counting, **options)(type("Two", (), named))


def last(run: Any) -> int:
    return int(run.state.n)


def firing(run: Run, event: str) -> dict[str, Any]:
    data: dict[str, Any] = RunEvent.objects.filter(run=run, event=event, data__has_key="phase").latest("id").data
    return data


def answer(run: Run, *, yes: bool) -> None:
    wait = Wait.objects.get(run=run, clock__gt="", state="open")
    (commands.approve if yes else commands.refuse)(wait.pk, tenant=run.tenant, actor="ada", reason="seen")


@pytest.mark.parametrize(
    ("policy", "state", "said"),
    [("retry", "succeeded", "queued"), ("fail", "failed", "failed"), ("cancel", "cancelled", "cancelled"),
     ("continue", "succeeded", "running"), ("extend", "succeeded", "running"), ("ask", "waiting", "waiting")],
)  # fmt: skip
def test_step_timeout_meets_its_policy(engine, later, policy, state, said):
    def a(run: Any) -> str:
        run.state.n = 7
        if run.attempt == 1:
            later(31)
            run.progress(1)
        return "itself"

    default = {"default": "instead"} if policy == "continue" else {}
    two_steps(a, of_step={"timeout": 30.0, "on_timeout": policy, **default})
    run = engine.run("two")
    told = firing(run, "step_timeout")
    assert (run.state, told["next_state"], told["limit_seconds"]) == (state, said, 30.0)
    assert (told["phase"], told["cause"]) == ("computing", "design_error")
    if policy == "continue":
        assert Checkpoint.objects.get(run=run, step_id="a", kind="step").output == '"instead"'
        # What the entry had made of the state is not believed.
        assert Checkpoint.objects.get(run=run, kind="finish").output == "0"
    if policy == "ask":
        answer(run, yes=True)
        engine.drain()
        run.refresh_from_db()
        assert run.state == "succeeded"


def test_person_who_says_no_to_another_attempt_ends_the_run(engine, later):
    def a(run: Any) -> None:
        later(31)
        run.progress(1)

    two_steps(a, of_step={"timeout": 30.0, "on_timeout": "ask"})
    run = engine.run("two")
    answer(run, yes=False)
    run.refresh_from_db()
    assert run.state == "timed_out"


def test_step_that_may_take_once_more_as_long_is_ended_after_that(engine, later):
    def a(run: Any) -> None:
        later(31)
        run.progress(1)
        later(31)
        run.progress(2)

    two_steps(a, of_step={"timeout": 30.0, "on_timeout": "extend", "retry": Retry(max_attempts=1)})
    run = engine.run("two")
    told = [e.data for e in RunEvent.objects.filter(run=run, event="step_timeout").order_by("id")]
    assert run.state == "failed"
    assert [(one["limit_seconds"], one["next_state"]) for one in told] == [(30.0, "running"), (60.0, "failed")]


@pytest.mark.parametrize(
    ("policy", "state"),
    [("retry", "succeeded"), ("fail", "failed"), ("cancel", "cancelled"), ("continue", "succeeded"),
     ("ask", "waiting")],
)  # fmt: skip
def test_killed_step_meets_the_same_policy(engine, database, policy, state):
    def a(run: Any) -> str:
        if run.attempt == 1:
            held = Run.objects.get(pk=run.id)
            watched = Watched(run_id=held.pk, fence=held.fence, step_id="a", timeout=5.0, entered_at=-1e6)
            assert database.transacting(lambda cursor: hard_timeouts.take_away(cursor, watched))
        return "itself"

    two_steps(a, of_step={"timeout": 5.0, "on_timeout": policy})
    run = engine.run("two")
    assert (run.state, firing(run, "step_timeout")["clock"]) == (state, "step_timeout")
    if policy == "continue":
        assert Checkpoint.objects.get(run=run, step_id="a", kind="step").output is None


@pytest.mark.parametrize(
    ("policy", "state", "said"),
    [("retry", "succeeded", "sent again"), ("fail", "failed", "step fails"), ("cancel", "cancelled", "cancelled"),
     ("continue", "succeeded", "went on with its default"), ("ask", "waiting", "waiting")],
)  # fmt: skip
def test_call_timeout_meets_its_policy(engine, policy, state, said):
    asked = []
    default: Any = {"default": "instead"} if policy == "continue" else {}

    @tool(safety="read", name="look", retry=AT_ONCE, on_timeout=policy, **default)
    def look(call: Any) -> str:
        asked.append(call.attempt)
        if len(asked) == 1:
            raise TimeoutError("no answer")
        return "itself"

    two_steps(lambda run: run.call(look), of_step={"retry": Retry(max_attempts=1)})
    run = engine.run("two")
    told = firing(run, "ask" if policy == "ask" else "call_timeout")
    assert (run.state, told["next_state"], told["whom"]) == (state, said, "tool look")
    assert told["cause"] == "slow_dependency"
    if policy == "continue":
        assert json.loads(Checkpoint.objects.get(run=run, step_id="a", kind="step").output or "") == "instead"
    if policy == "ask":
        answer(run, yes=True)
        engine.drain()
        run.refresh_from_db()
        assert (run.state, len(asked)) == ("succeeded", 2)


def test_step_whose_clock_comes_during_a_call_names_the_tool(engine, later):
    @tool(safety="read", name="crawl", timeout=300)
    def crawl(call: Any) -> str:
        later(31)
        return "late"

    def a(run: Any) -> Any:
        found = run.call(crawl)
        run.progress(1)
        return found

    two_steps(a, of_step={"timeout": 30.0, "retry": Retry(max_attempts=1)})
    told = firing(engine.run("two"), "step_timeout")
    assert (told["phase"], told["cause"], told["whom"]) == ("calling", "slow_dependency", "tool crawl")


@pytest.mark.parametrize("policy", ["extend", "ask"])
def test_deadline_of_a_run_in_hand_that_may_have_more_time_is_seen_to_once_nobody_has_it(engine, later, policy):
    def a(run: Any) -> str:
        if run.entry == 1:
            Run.objects.filter(pk=run.id).update(created_at=now() - HOUR, deadline_at=now() - timedelta(seconds=1))
            later(3601)
            run.progress(1)
        return "done"

    two_steps(a, deadline=HOUR, on_deadline=policy, of_step={"timeout": None})
    run = engine.run("two")
    assert run.state == "queued"
    engine.rounds()
    told = firing(run, "run_deadline" if policy == "extend" else "ask")
    assert (told["phase"], told["cause"]) == ("computing", "design_error")
    if policy == "ask":
        answer(run, yes=True)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_deadline_whose_policy_is_to_cancel_cancels_a_run_in_hand(engine, later):
    def a(run: Any) -> None:
        later(3601)
        run.progress(1)

    two_steps(a, deadline=HOUR, on_deadline="cancel", of_step={"timeout": None})
    run = engine.run("two")
    assert (run.state, firing(run, "stop")["next_state"]) == ("cancelled", "cancelled")


def test_wait_that_nobody_answered_goes_on_with_its_default(engine):
    two_steps(lambda run: run.wait_for("go", timeout=HOUR, on_timeout="continue", default={"n": 3}))
    run = engine.run("two")
    engine.go_on(run)
    assert Checkpoint.objects.get(run=run, step_id="a", kind="step").output == '{"n":3}'


def test_children_may_take_only_so_long(engine):
    workflow(name="below", version=1, state=Counting)(
        type("Below", (), {"a": step(id="a")(lambda run: run.wait_for("never"))})
    )
    two_steps(lambda run: run.children("below", [{}], timeout=HOUR, on_timeout="continue", default=[]))
    run = engine.run("two")
    make_due(run)
    assert engine.go_on(run).state == "succeeded"
    assert Run.objects.get(workflow="below").state == "cancelled"


def test_author_cannot_take_the_name_of_a_clocks_question(engine):
    two_steps(lambda run: run.approval("clock:run_deadline"))
    run = engine.run("two")
    assert (run.state, "choose another name" in run.error_message) == ("failed", True)

"""Rates in force: starts that are refused, calls that wait in hand or hand their run back, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import Retry, State, step, tool, workflow
from durableops.engine import rates
from durableops.engine.quotas import Owner, set_quota
from durableops.engine.start import start
from durableops.errors import InputRefused, RateLimited, RetryLater
from durableops.limits.rate_limits import Grant, limiter
from runs.models import Run, RunEvent
from tests.factories import events_of, make_due, make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
SAID: dict[str, Any] = {"actor": "ada", "reason": "the desk is small"}


class Nothing(State):
    pass


@pytest.fixture(autouse=True)
def fresh():
    rates.forget()
    yield
    rates.forget()


@pytest.fixture
def bucket(monkeypatch):
    """What the buckets grant, in turn: a number, or the seconds to wait as a negative one. Afterwards everything."""
    asked: list[tuple[list[str], int]] = []
    given: list[float] = []

    def take(limits, wanted=1):
        if limits:
            asked.append(([limit.name for limit in limits], wanted))
        one = given.pop(0) if given and limits else wanted
        return Grant(granted=min(wanted, int(one))) if one >= 0 else Grant(granted=0, wait_seconds=-one)

    monkeypatch.setattr(limiter, "take", take)
    return given, asked


def quota(engine, **changes: Any) -> None:
    set_quota(Owner(tenant=engine.tenant), changes, **SAID)


def caller(n: int = 1, *, system: str = "", retry: Retry | None = None) -> list[str]:
    """A workflow whose step makes so many calls; returns the list of what was sent."""
    sent: list[str] = []

    @tool(safety="keyed", name="send", retry=retry or Retry(max_attempts=1))
    def send(call):
        sent.append(call.resource)
        return {"id": call.resource}

    @workflow(name="caller", version=1, state=Nothing)
    class Caller:
        @step
        def only(run: Any):
            return run.call_many(send, [{"resource": str(k)} for k in range(n)])

    return sent


def test_start_past_the_rate_is_refused_and_leaves_nothing(engine, bucket):
    caller()
    quota(engine, starts_per_minute=60)
    given, asked = bucket
    given += [1, -1.5]
    engine.start("caller")
    with pytest.raises(RateLimited, match="may start 60 runs a minute") as refused:
        engine.start("caller")
    assert refused.value.after_seconds == 1.5
    assert Run.objects.count() == 1
    assert asked == [([f"starts:{engine.tenant.pk}"], 1)] * 2


def test_start_that_was_made_before_is_answered_and_takes_nothing_from_the_rate(engine, bucket):
    caller()
    quota(engine, starts_per_minute=60)
    given, asked = bucket
    given += [1, -1.5]
    first = engine.start("caller", start_key="k")
    again = start("caller", {}, tenant=engine.tenant, actor="tests", start_key="k")
    assert (again.run_id, again.created) == (first.pk, False)
    assert len(asked) == 1


def test_tenant_without_a_rate_is_never_asked_about(engine, bucket):
    sent = caller(3)
    quota(engine, starts_per_minute=60, call_rates={"tool:send": 6})
    rates.forget()
    other = make_tenant("other")
    run = engine.run("caller", tenant=other)
    assert (run.state, len(sent)) == ("succeeded", 3)
    assert bucket[1] == []


def test_priority_is_brought_into_the_range_of_the_tenant(engine):
    caller()
    quota(engine, priority_min=-5, priority_max=10)
    for asked, kept in ((50, 10), (-50, -5), (3, 3)):
        assert engine.start("caller", priority=asked).priority == kept


def test_short_wait_is_spent_in_hand(engine, bucket):
    sent = caller(1)
    quota(engine, call_rates={"tool:send": 600})
    bucket[0].extend([-0.01, 1])
    run = engine.run("caller")
    assert (run.state, sent) == ("succeeded", ["0"])
    assert events_of(run).count("claim") == 1


def test_longer_wait_hands_the_run_back_with_its_gate_and_it_goes_on_by_itself(engine, bucket):  # C076
    sent = caller(3)
    quota(engine, running_cap=1, call_rates={"tool:send": 6})
    bucket[0].extend([1, -20])
    run = engine.run("caller")
    assert (run.state, run.deferred, run.slot, sent) == ("queued", True, None, ["0"])
    event = RunEvent.objects.get(run=run, event="hand_back")
    assert (event.data["gate"], event.data["per_minute"], event.data["cause"]) == ("rate", 6, "rate")
    assert 20 <= event.data["delay_seconds"] <= 30
    # Its place is free for another run meanwhile.
    other = engine.run("caller")
    assert other.state == "succeeded"
    make_due(run)
    engine.drain()
    run.refresh_from_db()
    # The call that was made is on record; the others went out once.
    assert (run.state, sorted(sent)) == ("succeeded", ["0", "0", "1", "1", "2", "2"])


def test_calls_go_out_in_portions_as_the_rate_allows(engine, bucket):
    sent = caller(5)
    quota(engine, call_rates={"tool:send": 600, "system:send": 6000})
    bucket[0].extend([2, -0.01, 2, 1])
    run = engine.run("caller")
    assert run.state == "succeeded"
    assert sorted(sent) == ["0", "1", "2", "3", "4"]
    assert [wanted for _, wanted in bucket[1]] == [5, 3, 3, 1]
    tenant = engine.tenant.pk
    assert bucket[1][0][0] == [f"calls:{tenant}:tool:send", f"calls:{tenant}:system:send"]


def test_repeats_after_a_refusal_for_now_count_as_calls(engine, bucket):  # C086
    answers = iter([RetryLater(0, "429"), RetryLater(0, "429")])
    sent: list[str] = []

    @tool(safety="keyed", name="send", retry=Retry(max_attempts=5, first_delay=0))
    def send(call):
        sent.append(call.resource)
        if (error := next(answers, None)) is not None:
            raise error
        return {}

    @workflow(name="caller", version=1, state=Nothing)
    class Caller:
        @step
        def only(run: Any):
            run.call(send, resource="x")

    quota(engine, call_rates={"tool:send": 600})
    run = engine.run("caller")
    assert (run.state, sent) == ("succeeded", ["x"] * 3)
    assert len(bucket[1]) == 3


def test_step_that_uses_a_resource_begins_as_often_as_its_rate_allows(engine, bucket):
    entered: list[str] = []

    @workflow(name="scanner", version=1, state=Nothing)
    class Scanner:
        @step(uses="db-scan")
        def scan(run: Any):
            entered.append(run.id)

    set_quota(Owner(resource="db-scan"), {"starts_per_minute": 2}, **SAID)
    bucket[0].extend([1, -30])
    first, second = engine.run("scanner"), engine.run("scanner")
    assert (first.state, second.state, len(entered)) == ("succeeded", "queued", 1)
    assert bucket[1][0][0] == ["uses:db-scan"]


@pytest.mark.parametrize(
    "given",
    [
        {"send": 5}, {"tool:": 5}, {"tool:send": -1}, {"tool:send": None}, {"tool:send": 1.5}, ["tool:send"],
        {f"tool:{n}": 1 for n in range(101)},
    ],
    ids=["no kind", "no name", "negative", "none", "fraction", "list", "too many"],
)  # fmt: skip
def test_call_rates_that_make_no_sense_are_refused(engine, given):
    with pytest.raises(InputRefused):
        quota(engine, call_rates=given)


def test_changed_rate_holds_for_calls_that_wait(engine, monkeypatch):  # C086
    """The policy is read anew while a run waits in hand: no restart."""
    sent = caller(1)
    quota(engine, call_rates={"tool:send": 600})
    tenant = engine.tenant

    def raise_limit(limits, wanted=1):
        if limits and limits[0].per_minute == 600:
            set_quota(Owner(tenant=tenant), {"call_rates": {"tool:send": 1200}}, **SAID)
            return Grant(granted=0, wait_seconds=0.01)
        return Grant(granted=wanted)

    monkeypatch.setattr(limiter, "take", raise_limit)
    run = engine.run("caller")
    assert (run.state, sent) == ("succeeded", ["0"])

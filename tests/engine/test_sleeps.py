"""Times of waits: sleeps of any length, timeouts by policy, and the deadline that no wait moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durableops import WaitTimeout
from runs.models import Receipt, Run, RunEvent, Wait
from tests.engine.one_step import HOUR, one_step, output
from tests.factories import now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("days", [25, 30, 364, 10_000])
def test_long_sleep_is_kept_as_the_right_instant(engine, days):  # C056
    one_step(lambda run: run.sleep(timedelta(days=days)))
    before = now()
    run = engine.run("one")
    assert run.state == "waiting"
    due = Wait.objects.get(run=run).due_at
    assert due is not None
    assert abs(due - before - timedelta(days=days)) < timedelta(minutes=1)
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "waiting"


@pytest.mark.parametrize(
    "length",
    [
        timedelta(days=10_000_000),
        10_000_000 * 86400.0,
        -1,
        -0.001,
        timedelta(days=-1),
        float("nan"),
        float("inf"),
        1e300,
    ],
    ids=str,
)
def test_senseless_sleep_fails_the_step_with_a_sentence_and_no_retry(engine, length):  # C056
    one_step(lambda run: run.sleep(length))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert "was asked for" in run.error_message
    assert not Wait.objects.exists()


@pytest.mark.parametrize("length", [0, 0.0, timedelta(0)])
def test_sleep_of_nothing_goes_on_at_once(engine, length):  # C056
    one_step(lambda run: run.sleep(length))
    assert engine.run("one").state == "succeeded"
    assert not Wait.objects.exists()


def test_sleep_is_counted_from_when_it_was_first_recorded(engine):
    one_step(lambda run: run.sleep(3600))
    run = engine.run("one")
    due = Wait.objects.get().due_at
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())
    engine.drain()
    run.refresh_from_db()
    assert run.state == "waiting"
    assert Wait.objects.get().due_at == due
    assert engine.go_on(run).state == "succeeded"
    assert Receipt.objects.filter(run=run).latest("number").cause == "timer"


def test_sleep_until_the_past_goes_on_and_until_the_future_waits(engine):
    later = now() + HOUR

    def a(run: Any):
        run.sleep_until(datetime(2020, 1, 1, tzinfo=UTC), key="past")
        run.sleep_until(later, key="later")

    one_step(a)
    run = engine.run("one")
    assert run.state == "waiting"
    due = Wait.objects.get().due_at
    assert due is not None
    assert abs(due - later) < timedelta(seconds=5)
    assert engine.go_on(run).state == "succeeded"


@pytest.mark.parametrize("when", [datetime(2030, 1, 1), datetime(9999, 12, 31, tzinfo=UTC)], ids=["naive", "year 9999"])
def test_senseless_instant_fails_the_step_with_a_sentence(engine, when):
    one_step(lambda run: run.sleep_until(when))
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)


@pytest.mark.parametrize(
    ("policy", "state"),
    [("raise", "succeeded"), ("continue", "succeeded"), ("cancel", "cancelled"), ("fail", "timed_out")],
)
def test_wait_that_expires_follows_its_policy_and_its_event_says_everything(engine, policy, state):
    def a(run: Any):
        try:
            return ["went on", run.wait_for("go", timeout=HOUR, on_timeout=policy)]
        except WaitTimeout as late:
            return ["raised", str(late)]

    one_step(a)
    run = engine.run("one")
    assert engine.go_on(run).state == state
    firing = RunEvent.objects.get(run=run, event="wait_timeout").data
    assert firing["clock"] == "wait_timeout"
    assert firing["limit_seconds"] is not None
    assert "event 'go' was not answered" in firing["trigger"]
    assert firing["cause"] == "unresponsive_system"
    assert firing["next_state"] == {"cancel": "cancelled", "fail": "timed_out"}.get(policy, "queued")
    assert Wait.objects.get().state == "expired"
    if state == "succeeded":
        assert output(run)[0] == ("raised" if policy == "raise" else "went on")


def test_wait_that_expires_and_raises_fails_the_run_without_another_attempt(engine):
    one_step(lambda run: run.wait_for("go", timeout=HOUR))
    run = engine.go_on(engine.run("one"))
    assert (run.state, run.step_attempts) == ("failed", 1)


def test_deadline_of_the_run_comes_first_and_no_wait_moves_it(engine):  # C053
    one_step(lambda run: run.wait_for("go", timeout=timedelta(days=30)), deadline=HOUR)
    run = engine.run("one")
    deadline = run.deadline_at
    Run.objects.filter(pk=run.pk).update(deadline_at=now() - timedelta(seconds=1))
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "timed_out"
    firing = RunEvent.objects.get(run=run, event="time_out").data
    assert (firing["clock"], firing["cause"], firing["phase"]) == (
        "run_deadline",
        "unresponsive_system",
        "waiting_system",
    )
    assert Wait.objects.get().state == "cancelled"
    assert deadline is not None


def test_ten_waits_leave_the_deadline_where_it_was(engine):  # C053
    one_step(lambda run: [run.sleep(60, key=str(n)) for n in range(10)] and None, deadline=HOUR)
    run = engine.start("one")
    deadline = run.deadline_at
    engine.drain()
    for _ in range(10):
        run = engine.go_on(run)
        assert run.deadline_at == deadline
    assert run.state == "succeeded"

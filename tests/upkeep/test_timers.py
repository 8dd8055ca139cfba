"""Timers: what is due is woken, what has expired follows its policy, what is overdue ends; all in bounded batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops.upkeep import clocks, timers
from runs.models import Run, RunEvent, Wait
from runs.states import PARKED, State
from tests.factories import events_of, make_run, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

PAST, FUTURE = now() - timedelta(minutes=1), now() + timedelta(hours=1)


def test_due_sleep_is_answered_and_wakes_its_run(database):
    run = make_run(state="waiting")
    wait = make_wait(run, kind="time", name="sleep", due_at=PAST)
    assert timers.wake_due(database) == 1
    run.refresh_from_db()
    wait.refresh_from_db()
    assert (run.state, run.wake_cause) == ("queued", "timer")
    assert (wait.state, wait.due_at) == ("answered", None)
    assert timers.wake_due(database) == 0


def test_due_poll_stays_open_for_its_turn(database):
    run = make_run(state="waiting")
    wait = make_wait(run, kind="poll", name="status", due_at=PAST)
    timers.wake_due(database)
    wait.refresh_from_db()
    assert (wait.state, wait.due_at) == ("open", None)


def test_what_is_not_due_waits_on(database):
    run = make_run(state="waiting")
    make_wait(run, kind="time", due_at=FUTURE, expires_at=FUTURE)
    assert timers.wake_due(database) == timers.expire_waits(database) == clocks.fire_deadlines(database) == 0
    assert events_of(run) == []


def test_many_that_are_due_are_woken_in_batches(database):
    first = make_run(state="waiting")
    facts: dict[str, Any] = {"tenant": first.tenant, "workflow": first.workflow, "plan": first.plan, "step_id": "first"}
    runs = Run.objects.bulk_create(Run(state="waiting", **facts) for _ in range(timers.BATCH + 5))
    Wait.objects.bulk_create(
        Wait(run=run, tenant=run.tenant, step_id="first", kind="time", name="sleep", due_at=PAST) for run in runs
    )
    assert [timers.wake_due(database) for _ in range(3)] == [timers.BATCH, 5, 0]
    assert Run.objects.filter(state="queued").count() == timers.BATCH + 5


@pytest.mark.parametrize("state", sorted(PARKED))
def test_overdue_run_that_does_not_run_is_ended_with_its_clock(database, state):  # C053 C055
    run = make_run(state=state, deadline_at=PAST)
    assert clocks.fire_deadlines(database) == 1
    run.refresh_from_db()
    assert run.state == "timed_out"
    assert run.error_class == "DeadlinePassed"
    data = RunEvent.objects.get(run=run).data
    assert (data["clock"], data["next_state"]) == ("run_deadline", "timed_out")
    assert data["cause"] in ("overload", "unresponsive_user", "unresponsive_system")
    assert state in data["trigger"]


@pytest.mark.parametrize("state", sorted(set(State) - PARKED))
def test_overdue_run_that_runs_or_has_ended_is_left(database, state):
    run = make_run(state=state, deadline_at=PAST)
    assert clocks.fire_deadlines(database) == 0
    run.refresh_from_db()
    assert run.state == state


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("approval", "unresponsive_user"), ("file", "unresponsive_user"), ("event", "unresponsive_system"),
     ("poll", "unresponsive_system"), ("children", "unresponsive_system"), ("time", "design_error")],
)  # fmt: skip
@pytest.mark.parametrize("clock", ["deadline", "wait"])
def test_cause_says_whom_the_run_waited_for(database, kind, cause, clock):
    run = make_run(state="waiting", deadline_at=PAST if clock == "deadline" else None)
    make_wait(run, kind=kind, expires_at=PAST if clock == "wait" else None)
    clocks.fire_deadlines(database)
    timers.expire_waits(database)
    event = RunEvent.objects.get(run=run, event="time_out" if clock == "deadline" else "wait_timeout")
    assert event.data["cause"] == cause


def test_of_two_clocks_the_runs_own_ends_it_and_is_named(database):
    """The effective expiry of a wait is the earlier of the two."""
    run = make_run(state="waiting", deadline_at=PAST)
    make_wait(run, expires_at=FUTURE, on_timeout="continue")
    timers.expire_waits(database)
    clocks.fire_deadlines(database)
    assert events_of(run) == ["time_out"]
    assert Wait.objects.get().state == "cancelled"


def test_two_upkeeps_at_once_fire_a_clock_once(database, second):
    run = make_run(state="waiting")
    make_wait(run, kind="time", due_at=PAST)
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [run.pk])
        assert timers.wake_due(database) == 0
    assert timers.wake_due(database) == 1
    assert events_of(run) == ["wake"]


def test_clock_of_a_run_that_ended_meanwhile_fires_nothing(database):
    run = make_run(state="cancelled")
    wait = make_wait(run, expires_at=PAST, due_at=PAST, on_timeout="fail")
    timers.wake_due(database)
    timers.expire_waits(database)
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert not RunEvent.objects.filter(run=run, to_state="timed_out").exists()
    assert Wait.objects.filter(pk=wait.pk).exists()


def test_paused_run_is_woken_and_not_started(database):
    run = make_run(state="waiting", paused=True)
    make_wait(run, kind="time", due_at=PAST)
    timers.wake_due(database)
    assert (Run.objects.get().state, Run.objects.get().paused) == ("queued", True)

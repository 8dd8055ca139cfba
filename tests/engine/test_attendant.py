"""Stopping one run in a process that holds many: by what the record says, by the grace, and without the others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from durableops import State, step, tool, workflow
from durableops.conf import override_conf
from durableops.engine import commands
from runs.models import Checkpoint, Run, RunEvent
from tests.factories import events_of, now
from tests.fixtures.engine import Background
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

WHO = {"actor": "ann", "reason": "tests"}


@pytest.fixture
def places() -> int:
    return 4


class Nothing(State):
    pass


class Gate:
    """Where a plain step stands until the test lets it go on, whatever anybody asks of it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.entered.set()
        assert self.open.wait(20)


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open.set()


@pytest.fixture
def stubborn(engine, gate):
    """A run whose step does not look at anything until the gate opens, with the worker that holds it."""

    @workflow(name="stubborn", version=1, state=Nothing)
    class Stubborn:
        @step
        def a(run):
            gate.pass_through()
            return "late"

    run = engine.start("stubborn")
    engine.worker.listener.fill()
    assert gate.entered.wait(10)
    return run


@pytest.fixture
def waits_long(engine):
    """A run in an async step that awaits something for an hour; `seen` tells what became of it."""
    seen: list[str] = []

    @workflow(name="waits-long", version=1, state=Nothing)
    class WaitsLong:
        @step
        async def a(run):
            seen.append("entered")
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned up")

    run = engine.start("waits-long")
    engine.worker.listener.fill()
    eventually(lambda: seen, hoping_for="the step to be entered")
    return run, seen


def look(engine) -> None:
    engine.worker.attendant.look()


def state_of(run: Run) -> str:
    run.refresh_from_db()
    return run.state


@pytest.mark.parametrize(
    ("said", "state"),
    [("cancel", "cancelled"), ("pause", "queued"), ("deadline", "timed_out"), ("switch", "queued"), ("stop", "queued")],
)
def test_async_step_in_a_long_call_leaves_at_once_and_may_clean_up(engine, waits_long, said, state):
    run, seen = waits_long
    say(engine, run, said)
    look(engine)
    eventually(lambda: state_of(run) == state, hoping_for=f"the run to be {state}")
    assert seen == ["entered", "cancelled", "cleaned up"]
    assert run.step_attempts == 0
    assert "step_did_not_stop" not in events_of(run)
    assert engine.worker.attendant.numbers().forced_stops == 0


def say(engine, run: Run, what: str) -> None:
    if what == "cancel":
        commands.cancel(run.pk, tenant=engine.tenant, **WHO)
    elif what == "pause":
        commands.pause(run.pk, tenant=engine.tenant, **WHO)
    elif what == "deadline":
        Run.objects.filter(pk=run.pk).update(deadline_at=now() - timedelta(seconds=1))
    elif what == "switch":
        commands.set_switch(scope="tenant", tenant=engine.tenant, **WHO)
    else:
        engine.worker.stopping.begin(grace_seconds=0)


def test_async_step_whose_run_was_taken_over_stops_and_says_so(engine, waits_long):
    run, seen = waits_long
    with contextlib.closing(engine.another_worker()):
        engine.lose_worker()
        engine._others[-1].attendant.look()
        eventually(lambda: "late_result_rejected" in events_of(run))
        assert seen[-1] == "cleaned up"


@pytest.mark.parametrize(("said", "state"), [("cancel", "cancelled"), ("pause", "queued"), ("deadline", "timed_out")])
def test_plain_step_that_ignores_it_is_fenced_off_and_its_late_result_is_refused(engine, stubborn, gate, said, state):
    say(engine, stubborn, said)
    with override_conf(step_grace_seconds=0.0):
        look(engine)
        assert state_of(stubborn) == "running"
        look(engine)
    assert state_of(stubborn) == state
    told = RunEvent.objects.get(run=stubborn, event="step_did_not_stop")
    assert (told.step_id, "step 'a' did not stop" in told.reason) == ("a", True)
    assert engine.worker.attendant.numbers().forced_stops == 1
    # The process can only be replaced: it claims nothing more.
    assert engine.worker.stopping.since is not None

    gate.open.set()
    eventually(lambda: events_of(stubborn)[-1] == "late_result_rejected")
    assert state_of(stubborn) == state
    assert not Checkpoint.objects.filter(run=stubborn, kind="finish").exists()


def test_plain_step_leaves_at_its_next_call_without_any_force(engine, gate):
    @workflow(name="polite", version=1, state=Nothing)
    class Polite:
        @step
        def a(run: Any):
            gate.pass_through()
            run.progress(1)

    run = engine.start("polite")
    engine.worker.listener.fill()
    assert gate.entered.wait(10)
    commands.cancel(run.pk, tenant=engine.tenant, **WHO)
    look(engine)
    gate.open.set()
    eventually(lambda: state_of(run) == "cancelled")
    assert events_of(run) == ["start", "claim", "cancel_requested", "stop"]
    assert engine.worker.stopping.since is None


def test_one_stuck_step_does_not_lose_the_others(engine, stubborn, gate):
    other_gate = Gate()

    @workflow(name="innocent", version=1, state=Nothing)
    class Innocent:
        @step
        def first(run):
            other_gate.pass_through()

        @step
        def second(run):
            return "done"

    other = engine.start("innocent")
    engine.worker.listener.fill()
    assert other_gate.entered.wait(10)
    commands.cancel(stubborn.pk, tenant=engine.tenant, **WHO)
    with override_conf(step_grace_seconds=0.0):
        look(engine)
        look(engine)
    assert state_of(stubborn) == "cancelled"
    # Not waited for any more, while the other one is.
    assert not engine.worker.listener.in_hand.wait_for_end(0)
    other_gate.open.set()
    assert engine.worker.listener.in_hand.wait_for_end(10)

    assert state_of(other) == "queued"
    assert (other.step_id, other.recoveries) == ("second", 0)
    engine.another_worker().drain()
    assert state_of(other) == "succeeded"
    gate.open.set()


def test_step_that_hangs_in_a_transaction_with_its_run_locked_is_tried_again(engine, stubborn, second):
    commands.cancel(stubborn.pk, tenant=engine.tenant, **WHO)
    with second.transaction(), override_conf(step_grace_seconds=0.0):
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [stubborn.pk])
        look(engine)
        look(engine)
        assert state_of(stubborn) == "running"
    with override_conf(step_grace_seconds=0.0):
        look(engine)
    assert state_of(stubborn) == "cancelled"


def test_step_that_blocks_the_loop_is_named_once_on_its_run(engine):
    release = threading.Event()
    entered = threading.Event()

    @workflow(name="blocks", version=1, state=Nothing)
    class Blocks:
        @step
        async def a(run):
            async def inner():
                entered.set()
                release.wait(20)

            # In a task of its own making: it is still this step that holds the loop.
            await asyncio.create_task(inner())

    run = engine.start("blocks")
    engine.worker.listener.fill()
    try:
        assert entered.wait(10)
        look(engine)
        began = time.monotonic()

        def is_told() -> bool:
            look(engine)
            return "loop_blocked" in events_of(run)

        eventually(is_told, every=0.2)
        assert time.monotonic() - began >= 1.0
        assert engine.worker.attendant.numbers().loop_lag_seconds >= 1.0
        look(engine)
    finally:
        release.set()
    eventually(lambda: state_of(run) == "succeeded")
    blocked = RunEvent.objects.get(run=run, event="loop_blocked")
    assert blocked.step_id == "a"
    assert "test_attendant.py" in blocked.data["where"]


def test_run_that_stands_under_our_name_in_nobodys_hand_is_handed_back(engine):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run):
            return 1

    run = engine.start("one")
    engine.worker.listener.in_hand.claim(engine.worker.database)
    [held] = engine.worker.listener.in_hand.held()
    engine.worker.listener.in_hand.release(held)
    attendant = engine.worker.attendant
    attendant._ask_record([])
    assert state_of(run) == "running"
    attendant._ask_record([])
    assert state_of(run) == "queued"
    assert run.wake_cause == "database_lost"


def test_numbers_say_how_the_process_is_doing(engine, stubborn, gate):
    look(engine)
    numbers = engine.worker.attendant.numbers()
    assert numbers.in_hand == 1
    assert 2**20 < numbers.memory_bytes < 2**33
    assert 1 <= numbers.connections <= 6


def test_runs_are_moved_at_the_same_time_up_to_the_number_of_places(engine, places):
    meeting = threading.Barrier(places + 1)

    @workflow(name="meets", version=1, state=Nothing)
    class Meets:
        @step
        def a(run):
            meeting.wait(10)

    runs = [engine.start("meets") for _ in range(places)]
    drained = Background(engine.drain)
    meeting.wait(10)
    assert drained.result() == places
    assert [state_of(run) for run in runs] == ["succeeded"] * places


def test_call_inside_a_transaction_is_refused_for_it_would_hold_its_connection_while_it_waits(engine):
    @tool(safety="read")
    def look_up(call):
        return 1

    @workflow(name="holds", version=1, state=Nothing)
    class Holds:
        @step
        def a(run: Any):
            with transaction.atomic():
                return run.call(look_up)

    run = engine.run("holds")
    assert (run.state, run.error_class) == ("failed", "durableops.errors.Fatal")
    assert "inside a transaction" in run.error_message

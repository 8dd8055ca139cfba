"""Turns at a legacy system: who is next, who is gone past, and the last look before a call is sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops import tool
from durableops.engine import commands
from runs import queues
from runs.models import Doubt, IdempotencyRecord, Run, System, Wait
from tests.engine.ledger import Ledger, posting, sound
from tests.engine.one_step import ONCE, effects, one_step, output
from tests.factories import make_effect, make_run, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# Whoever cannot go holds nobody up.


def waiting_in_line(ledger_name: str = "ledger", **over: Any) -> IdempotencyRecord:
    """A run that waits for its turn, with its place."""
    run = make_run(state="waiting", **over)
    make_wait(run, kind="turn", name=ledger_name)
    return make_effect(run, safety="legacy", tool="post", system=ledger_name, state="queued")


def next_at(engine, system: str = "ledger"):
    with engine.worker.database.transaction() as cursor:
        return queues.wake_next(cursor, system)


def test_next_one_is_the_first_that_can_go(engine):
    System.objects.create(name="ledger")
    paused = waiting_in_line(paused=True, paused_by="ann")
    cancelled = waiting_in_line(cancel_requested=True)
    overdue = waiting_in_line(deadline_at=now() - timedelta(seconds=1))
    busy = make_effect(make_run(state="waiting"), safety="legacy", tool="post", system="ledger", state="queued")
    reviewed = make_effect(make_run(state="in_review"), safety="legacy", tool="post", system="ledger", state="queued")
    able = waiting_in_line()
    assert next_at(engine) == able.run_id
    assert Run.objects.get(pk=able.run_id).state == "queued"
    assert Wait.objects.get(run=able.run_id).state == "answered"
    others = [paused, cancelled, overdue, busy, reviewed]
    assert {IdempotencyRecord.objects.get(pk=effect.pk).state for effect in others} == {"queued"}


def test_run_that_was_woken_and_is_not_taken_is_gone_past_after_a_while(engine):
    System.objects.create(name="ledger")
    woken, behind = waiting_in_line(), waiting_in_line()
    assert next_at(engine) == woken.run_id
    assert next_at(engine) is None
    Run.objects.filter(pk=woken.run_id).update(state_since=now() - timedelta(seconds=queues.TURN_SECONDS + 1))
    assert next_at(engine) == behind.run_id


def test_nobody_is_woken_at_a_system_that_is_paused_or_held(engine):
    waiting_in_line()
    assert next_at(engine) is None
    System.objects.create(name="ledger", paused=True, paused_by="ann", paused_at=now())
    assert next_at(engine) is None
    System.objects.update(paused=False, paused_by="", paused_at=None)
    held = make_effect(make_run(), safety="legacy", tool="post", system="ledger", state="in_doubt", holds_system=True)
    assert next_at(engine) is None
    IdempotencyRecord.objects.filter(pk=held.pk).update(holds_system=False)
    assert next_at(engine) is not None


@pytest.mark.parametrize("verb", [commands.pause, commands.cancel])
def test_run_that_is_paused_or_cancelled_lets_the_next_one_go_in_the_same_transaction(engine, verb):
    System.objects.create(name="ledger")
    first, second = waiting_in_line(), waiting_in_line()
    verb(first.run_id, tenant=first.tenant, actor="ann", reason="not now")
    assert Run.objects.get(pk=second.run_id).state == "queued"


def test_cancelled_run_leaves_the_queue_and_was_never_sent(engine):
    System.objects.create(name="ledger")
    effect = waiting_in_line()
    commands.cancel(effect.run_id, tenant=effect.tenant, actor="ann", reason="no more")
    effect.refresh_from_db()
    assert (effect.state, Doubt.objects.count()) == ("withdrawn", 0)


def test_run_whose_deadline_comes_in_the_queue_lets_the_next_one_go(engine):
    System.objects.create(name="ledger")
    first, second = waiting_in_line(deadline_at=now() + timedelta(hours=1)), waiting_in_line()
    Run.objects.filter(pk=first.run_id).update(deadline_at=now() - timedelta(seconds=1))
    engine.rounds()
    first.refresh_from_db()
    assert (Run.objects.get(pk=first.run_id).state, first.state) == ("timed_out", "withdrawn")
    assert Run.objects.get(pk=second.run_id).state == "queued"


def test_turn_that_nobody_told_of_is_found_by_the_sweep(engine):
    System.objects.create(name="ledger")
    effect = waiting_in_line()
    engine.rounds()
    assert Run.objects.get(pk=effect.run_id).state == "queued"


def test_run_that_waits_for_a_turn_without_a_place_is_woken(engine):
    effect = waiting_in_line()
    IdempotencyRecord.objects.filter(pk=effect.pk).update(state="withdrawn", completed_at=now())
    engine.rounds()
    assert Run.objects.get(pk=effect.run_id).state == "queued"


def test_paused_system_keeps_runs_waiting_and_lets_them_go_when_it_is_resumed(engine):
    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1")["id"])
    System.objects.create(name="ledger", paused=True, paused_by="ann", paused_at=now())
    run = engine.run("one")
    assert (run.state, ledger.posted) == ("waiting", [])
    System.objects.update(paused=False, paused_by="", paused_at=None)
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


# What is looked at again just before it is sent.


def test_call_whose_run_was_cancelled_on_its_way_to_the_wire_is_withdrawn(engine):
    from durableops import failpoints

    ledger = Ledger()
    post = posting(ledger)
    one_step(lambda run: run.call(post, resource="r1") and None)
    run = engine.start("one")
    reached = failpoints.reach

    def cancel_at(point, *places):
        if point is failpoints.Point.AFTER_INTENT:
            commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
        reached(point, *places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", cancel_at)
        engine.drain()
    run.refresh_from_db()
    assert (run.state, effects(run)[0].state, ledger.posted) == ("cancelled", "withdrawn", [])
    assert Doubt.objects.count() == 0


def test_sender_that_slept_past_its_time_sends_nothing(engine, monkeypatch):
    from durableops import clock
    from durableops.engine import calling

    ledger = Ledger()
    post = posting(ledger, retry=ONCE)
    real = clock.uptime
    monkeypatch.setattr(calling, "uptime", lambda: real() + 6.0)
    one_step(lambda run: run.call(post, resource="r1") and None, retry=ONCE)
    run = engine.run("one")
    assert (run.state, ledger.posted, effects(run)[0].state) == ("failed", [], "withdrawn")


# async steps.


def test_tasks_of_one_step_take_turns_without_leaving_it(engine):
    import asyncio

    entered, on_wire = [], []

    @tool(safety="legacy", system="ledger", name="post", timeout=5.0)
    async def post(call):
        on_wire.append(call.resource)
        await asyncio.sleep(0.05)
        return {"id": call.resource}

    async def a(run: Any):
        entered.append(1)
        found = await asyncio.gather(*(run.call(post, resource=f"r{n}") for n in range(3)))
        return sorted(one["id"] for one in found)

    one_step(a)
    run = engine.run("one")
    assert (run.state, output(run)) == ("succeeded", ["r0", "r1", "r2"])
    assert (len(entered), sorted(on_wire)) == (1, ["r0", "r1", "r2"])
    sound(engine)


def test_step_that_must_wait_lets_a_call_on_the_wire_end_first(engine):
    import asyncio

    on_wire: list[str] = []

    @tool(safety="legacy", system="ledger", name="post", timeout=5.0)
    async def post(call):
        on_wire.append(call.resource)
        await asyncio.sleep(0.3)
        return {"id": "L"}

    async def wait(run: Any):
        while not on_wire:
            await asyncio.sleep(0.01)
        await run.wait_for("go")

    async def a(run: Any):
        await asyncio.gather(run.call(post, resource="r1"), wait(run))

    one_step(a)
    run = engine.run("one")
    assert (run.state, effects(run)[0].state) == ("waiting", "succeeded")
    assert Doubt.objects.count() == 0

"""Races at a legacy system: of two dispatchers one goes, and no run that is on its way to wait misses its turn."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connections

from durableops import State, failpoints, step, tool, workflow
from durableops.engine.database import Database
from durableops.engine.queues import Turn
from durableops.upkeep.invariants.report import CHECKS, examine
from runs import queues
from runs.fenced import Written
from runs.models import IdempotencyRecord, Run, System
from tests.factories import events_of, make_effect, make_run, make_wait, make_worker
from tests.fixtures.engine import Background, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

MAY = Written(
    head_seq=0, state="running", cancel_requested=False, paused=False, switched_off=False, deadline_left=None,
    intents={},
)  # fmt: skip


class Facts(State):
    n: int = 0


def queued(run: Run, **over: Any) -> IdempotencyRecord:
    System.objects.get_or_create(name="ledger")
    return make_effect(run, safety="legacy", tool="post", system="ledger", state="queued", **over)


def turn_of(effect: IdempotencyRecord) -> Turn:
    return Turn(system="ledger", effect_id=effect.pk, run_id=effect.run_id, seconds=5.0)


def test_of_two_that_dispatch_at_once_one_goes_and_the_other_sees_it(database, second):
    first, other = (queued(make_run(state="running", worker=make_worker())) for _ in range(2))
    with second.transaction():
        turn = turn_of(first)
        turn.take(second.cursor(), MAY)
        assert turn.taken
        later = turn_of(other)
        racing = Background(lambda: database.transacting(lambda cursor: later.take(cursor, MAY)))
        until_blocked()
    racing.result()
    assert not later.taken
    assert later.holder is not None
    assert later.holder[0] == first.pk


def test_place_further_back_does_not_go_before_one_that_can(database):
    first, other = (queued(make_run(state="running", worker=make_worker())) for _ in range(2))
    turn = turn_of(other)
    database.transacting(lambda cursor: turn.take(cursor, MAY))
    assert (turn.taken, turn.holder) == (False, None)
    turn = turn_of(first)
    database.transacting(lambda cursor: turn.take(cursor, MAY))
    assert turn.taken


def test_index_stands_behind_whoever_forgets_to_ask(database):
    effects = [queued(make_run()) for _ in range(2)]
    IdempotencyRecord.objects.filter(pk=effects[0].pk).update(state="intended", holds_system=True)
    with pytest.raises(IntegrityError, match="effect_one_dispatched_per_system"):
        IdempotencyRecord.objects.filter(pk=effects[1].pk).update(state="intended", holds_system=True)


def test_run_on_its_way_to_wait_does_not_miss_the_end_of_the_call_before_it(engine, second, monkeypatch):
    """The one frees the system between the other's look and its going to wait: the later one sees the earlier."""
    held = queued(make_run())
    IdempotencyRecord.objects.filter(pk=held.pk).update(state="intended", holds_system=True)

    @tool(safety="legacy", system="ledger", name="post", timeout=5.0)
    def post(call):
        return {"id": "L"}

    @workflow(name="one", version=1, state=Facts)
    class One:
        @step
        def a(run: Any):
            return run.call(post, resource="r1")["id"]

    reach = failpoints.reach
    woken: list[Any] = []

    def free_before_suspend(point, *places):
        if point is failpoints.Point.BEFORE_SUSPEND and not woken:
            # As whoever records the outcome does: the effect, then the system. Committed once the other one waits.
            second.execute("BEGIN")
            second.execute(
                "UPDATE runs_effect SET state = 'succeeded', result = '1', completed_at = now(), holds_system = false"
                " WHERE id = %s",
                [held.pk],
            )
            woken.append(queues.wake_next(second.cursor(), "ledger"))
        reach(point, *places)

    monkeypatch.setattr(failpoints, "reach", free_before_suspend)
    run = engine.start("one")
    worker = Background(engine.worker.drain)
    until_blocked()
    second.execute("COMMIT")
    worker.result()
    run.refresh_from_db()
    assert (run.state, woken) == ("succeeded", [None])
    assert events_of(run).count("suspend") == 1


def test_next_run_whose_row_is_locked_is_left_to_the_sweep(engine, second):
    run = make_run(state="waiting")
    make_wait(run, kind="turn", name="ledger")
    queued(run)
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        with engine.worker.database.transaction() as cursor:
            assert queues.wake_next(cursor, "ledger") is None
    engine.rounds()
    assert Run.objects.get(pk=run.pk).state == "queued"


def test_forty_runs_of_several_workers_go_one_at_a_time_and_all_of_them(engine):
    at_once, most, order, guard = 0, 0, [], threading.Lock()

    @tool(safety="legacy", system="ledger", name="post", timeout=5.0)
    def post(call):
        nonlocal at_once, most
        with guard:
            at_once += 1
            most = max(most, at_once)
            order.append(call.resource)
        threading.Event().wait(0.002)
        with guard:
            at_once -= 1
        return {"id": call.resource}

    @workflow(name="one", version=1, state=Facts)
    class One:
        @step
        def a(run: Any):
            return run.call(post, resource=f"r{run.state.n}")["id"]

    runs = [engine.start("one", {"n": n}) for n in range(40)]
    workers = [engine.another_worker() for _ in range(3)]

    def work(worker: Any) -> None:
        try:
            for _ in range(200):
                worker.drain()
                if not Run.objects.filter(finished_at=None).exists():
                    return
                threading.Event().wait(0.02)
        finally:
            connections.close_all()

    for one in [Background(partial(work, worker)) for worker in workers]:
        one.result(60)
    states = set(Run.objects.filter(pk__in=[run.pk for run in runs]).values_list("state", flat=True))
    assert states == {"succeeded"}
    assert most == 1
    assert sorted(order) == sorted(f"r{n}" for n in range(40))
    database = Database(name="test look")
    found = examine(database, checks=[c for c in CHECKS if not c.name.startswith("queued_run")], grace_seconds=0.0)
    database.close()
    assert [(f.check.name, f.sample) for f in found.broken] == []

"""Runs of a worker that has gone: back to the queue, more slowly, or stopped before they take more workers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops import State, step, workflow
from durableops.engine.burial import declare_ended, release_runs
from runs.models import Receipt, Run, RunEvent
from tests.factories import events_of, make_due, make_run, make_wait, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

KILLED = "its process was killed by SIGKILL"


class Nothing(State):
    pass


@pytest.fixture
def release(database):
    return lambda: database.transacting(release_runs)


def running(ended: str = KILLED, **over: Any) -> Run:
    return make_run(state="running", worker=make_worker(ended=ended), **over)


def test_run_of_a_lost_worker_is_queued_again_with_the_reason(release):
    run = running()
    [fired] = release()
    run.refresh_from_db()
    assert (fired.to_state, run.state, run.recoveries, run.worker_id) == ("queued", "queued", 1, None)
    assert (run.wake_cause, run.wake_detail) == ("worker_lost", KILLED)
    assert run.lost_at is not None
    assert run.woken_at is not None
    event = RunEvent.objects.get(run=run)
    assert (event.event, event.data["recoveries"]) == ("lose_worker", 1)
    assert run.due_at is not None
    assert run.due_at <= now()


def test_run_of_a_living_worker_is_left(release):
    run = make_run(state="running")
    assert release() == []
    run.refresh_from_db()
    assert run.state == "running"


def test_second_loss_in_a_row_comes_back_more_slowly(release):
    run = running(recoveries=1)
    release()
    run.refresh_from_db()
    assert run.due_at is not None
    assert run.due_at > now() + timedelta(seconds=1)


def test_run_that_keeps_killing_its_workers_is_stopped_with_a_clear_reason(engine):
    """Poison: five recoveries are stated, the sixth lost worker is the last."""

    attempts: list[int] = []

    @workflow(name="poison", version=1, state=Nothing, max_recoveries=5)
    class Poison:
        @step(timeout=None)
        def a(run: Any):
            attempts.append(run.attempt)
            engine.lose_worker()
            run.log("never")

    run = engine.start("poison")
    for _ in range(8):
        make_due(run)
        engine.worker.drain()
    run.refresh_from_db()
    assert run.state == "failed"
    assert attempts == [1, 2, 3, 4, 5, 6]
    assert run.error_class == "WorkerLost"
    assert "step 'a' lost its worker 6 times in a row" in run.error_message
    assert events_of(run).count("lose_worker") == 5
    assert "give_up" in events_of(run)
    assert Receipt.objects.filter(run=run, cause="worker_lost").count() == 5


def test_commit_in_between_makes_the_count_begin_anew(engine):
    @workflow(name="slow", version=1, state=Nothing, max_recoveries=1)
    class Slow:
        @step
        def a(run: Any):
            if run.attempt == 1:
                engine.lose_worker()

        @step
        def b(run: Any):
            if run.attempt == 1:
                engine.lose_worker()

    run = engine.start("slow")
    for _ in range(4):
        make_due(run)
        engine.worker.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_worker_that_was_stopped_in_an_orderly_way_is_nobodys_fault(release):  # C154
    run = running("stopped by its operator", recoveries=5)
    release()
    run.refresh_from_db()
    assert (run.state, run.recoveries, run.wake_cause) == ("queued", 5, "worker_stopped")


def test_cancelled_run_ends_when_its_worker_has_gone(release):
    run = running(cancel_requested=True)
    wait = make_wait(run)
    child = make_run(parent=run, parent_wait=wait, child_index=0)
    release()
    run.refresh_from_db()
    wait.refresh_from_db()
    child.refresh_from_db()
    assert (run.state, wait.state, child.state) == ("cancelled", "cancelled", "cancelled")
    assert events_of(run) == ["stop"]


def test_release_done_twice_is_done_once(release):  # C025
    runs = [running() for _ in range(3)]
    assert len(release()) == 3
    assert release() == []
    assert RunEvent.objects.count() == len(runs)


def test_paused_run_stays_paused(release):
    run = running(paused=True)
    release()
    run.refresh_from_db()
    assert (run.state, run.paused) == ("queued", True)


def test_lease_is_ended_once_and_only_at_the_counter_that_was_seen(database):
    worker = make_worker(counter=5)

    def declare(counter: int | None) -> bool:
        return database.retrying(lambda cursor: declare_ended(cursor, worker.pk, why="x" * 500, counter=counter))

    assert not declare(4)
    assert declare(5)
    assert not declare(5)
    worker.refresh_from_db()
    assert worker.ended_why == "x" * 200

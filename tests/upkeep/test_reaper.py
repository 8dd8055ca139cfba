"""The reaper's judgement: by counters on its own clock, hints from locks, and never on a clock that jumps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durableops import State, step, workflow
from durableops.engine.database import Database
from durableops.engine.lease import Lease
from durableops.upkeep.reaper import Reaper
from runs.models import Receipt, RunEvent, Worker
from tests.factories import make_run, make_worker, now
from tests.fixtures.engine import terminate
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    pass


@pytest.fixture
def reaper(database: Database) -> Reaper:
    return Reaper(database)


@pytest.fixture
def leased(transactional_db: None) -> Iterator[Lease]:
    """A registered worker that holds its lock."""
    found = Database(name="test lease holder")
    lease = Lease(found)
    lease.register(child_pid=0, versions_json="{}")
    yield lease
    found.close()


def ended(worker: Any) -> bool:
    return Worker.objects.get(pk=getattr(worker, "pk", None) or worker.id).ended_at is not None


def test_worker_whose_counter_stands_still_for_a_lease_is_dead(reaper, leased, later):
    reaper.look()
    later(9.9)
    assert reaper.look() == 0
    later(0.2)
    assert reaper.look() == 1
    assert "stood still" in Worker.objects.get().ended_why


def test_worker_that_renews_lives_however_long_its_step_is_silent(reaper, leased, later):  # C002
    for _ in range(180):
        leased.renew()
        reaper.look()
        later(9)
    assert not ended(leased)


def test_worker_that_died_before_its_first_heartbeat_is_found(reaper, later):  # C005
    worker = make_worker()
    run = make_run(state="running", worker=worker)
    reaper.look()
    later(10.1)
    assert reaper.look() == 1
    [fired] = reaper.release_batch()
    assert (fired.run_id, fired.to_state) == (run.pk, "queued")


def test_missing_lock_and_two_still_beats_are_enough(reaper, later):
    worker = make_worker(heartbeat_seconds=0.25)
    reaper.look()
    later(0.45)
    assert reaper.look() == 0
    later(0.1)
    assert reaper.look() == 1
    assert "its session is gone" in Worker.objects.get(pk=worker.pk).ended_why


def test_missing_lock_alone_is_only_a_hint(reaper, later):
    """After a failover every lock is gone at once, and everybody lives."""
    worker = make_worker()
    for _ in range(20):
        Worker.objects.filter(pk=worker.pk).update(counter=Worker.objects.get(pk=worker.pk).counter + 1)
        assert reaper.look() == 0
        later(0.4)


def test_lock_ends_with_the_session_that_took_it(reaper, leased, later, second):
    assert reaper.look() == 0
    assert terminate("durableops test lease holder") == 1
    eventually(lambda: holds_no_lock(second))
    reaper.look()
    later(0.6)
    assert reaper.look() == 1


def holds_no_lock(second: psycopg.Connection[Any]) -> bool:
    found = second.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    return found == (0,)


def test_worker_that_reconnects_takes_its_lock_again(leased, second, reaper, later):
    terminate("durableops test lease holder")
    leased._database.reconnect()
    assert leased.renew()
    assert not holds_no_lock(second)


@pytest.mark.parametrize("jump", [timedelta(minutes=5), timedelta(days=-365), timedelta(days=365)])
def test_clock_that_jumps_kills_nobody(reaper, leased, later, jump):  # C067
    """What a worker wrote about the time is never compared with anything."""
    Worker.objects.update(renewed_at=now() + jump, started_at=now() + jump)
    reaper.look()
    later(9)
    assert reaper.look() == 0
    assert not ended(leased)


def test_nobody_is_judged_within_one_lease_of_the_servers_start(reaper, later):
    """A lease longer than the server's life so far: as on the first look after a restart."""
    worker = make_worker(lease_seconds=10.0**9)
    reaper.look()
    later(10.0**9 + 1)
    assert reaper.look() == 0
    assert not ended(worker)


def test_observer_that_lost_its_own_connection_begins_to_look_anew(reaper, later, database):
    worker = make_worker()
    reaper.look()
    later(60)
    database.reconnect()
    assert reaper.look() == 0
    later(9)
    assert reaper.look() == 0
    later(2)
    assert reaper.look() == 1
    assert ended(worker)


def test_worker_that_moves_just_before_it_is_declared_is_spared(reaper, leased, later, database):
    """The counter is compared once more by the statement that ends the lease."""
    reaper.look()
    later(11)
    real = reaper._declare

    def declare(*args: Any, **more: Any) -> bool:
        leased.renew()
        return real(*args, **more)

    reaper._declare = declare
    assert reaper.look() == 0
    assert not ended(leased)


def test_second_supervisor_finds_what_the_first_died_over(database, second):  # C017
    """The first one died, or sleeps, with its locks; the other takes what is free now and the rest later."""
    worker = make_worker(ended="its process was killed by SIGKILL")
    held, free = make_run(state="running", worker=worker), make_run(state="running", worker=worker)
    reaper = Reaper(database)
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [held.pk])
        assert [fired.run_id for fired in reaper.release_batch()] == [free.pk]
    assert [fired.run_id for fired in reaper.release_batch()] == [held.pk]
    assert reaper.release_batch() == []


def test_sleeping_transaction_of_the_engine_is_ended_by_the_server_within_a_lease(database):  # C017
    with database.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone()[0] not in ("0", "")


def test_dead_worker_that_wakes_is_told_and_its_run_has_gone_on(engine, later):  # C019
    entered: list[int] = []
    observer = engine.upkeep._reaper

    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            entered.append(run.attempt)
            if run.attempt == 1:
                later(11)
                observer.look()
                observer.release_batch()
                engine.another_worker().drain()
            return run.attempt

    observer.look()
    run = engine.run("one")
    assert (run.state, entered) == ("succeeded", [1, 2])
    assert engine.worker.lease.renew() is False
    receipt = Receipt.objects.get(run=run)
    assert receipt.cause == "worker_lost"
    assert receipt.detection_seconds is not None
    assert receipt.detection_seconds >= 0
    assert RunEvent.objects.filter(run=run, event="late_result_rejected").count() == 1

"""Bells: after commit, for sleepers only, and never needed."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.db import transaction
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq.exceptions import DequeueTimeout

from durableops import State, step, workflow
from durableops.conf import get_conf, override_conf
from durableops.engine import bell
from durableops.engine.hand import Stopping
from durableops.engine.listening import BellWorker
from runs.ids import uuid7
from runs.models import Run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    pass


@pytest.fixture
def nobody_listens(monkeypatch):
    """A broker at an address where none is."""
    from rq import Queue

    away = redis.Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0))
    monkeypatch.setattr(bell, "queue", lambda: Queue(get_conf().queue_name, connection=away))


def sleepers(count: int) -> list:
    found = [uuid7() for _ in range(count)]
    for worker_id in found:
        bell.announce_sleep(worker_id)
    return found


def test_no_bell_is_rung_when_nobody_sleeps(clean_queue):
    assert bell.ring(5) == 0
    assert bell.queue().count == 0


@pytest.mark.parametrize(("asleep", "work", "bells"), [(3, 10, 3), (3, 2, 2), (1, 1, 1), (0, 9, 0)])
def test_never_more_bells_than_sleepers(clean_queue, asleep, work, bells):  # C025
    sleepers(asleep)
    bell.ring(work)
    assert bell.queue().count == bells
    bell.ring(work)
    assert bell.queue().count <= asleep


def test_worker_that_woke_needs_no_bell(clean_queue):
    [one, two] = sleepers(2)
    bell.announce_awake(one)
    assert bell.ring(9) == 1
    bell.announce_awake(two)
    assert bell.ring(9) == 0


def test_worker_that_died_asleep_ages_out_of_the_count(clean_queue):
    with override_conf(poll_seconds=-100.0):
        sleepers(1)
        assert bell.ring() == 0


def test_bell_carries_nothing_to_be_believed(clean_queue):
    sleepers(1)
    bell.ring()
    [job] = bell.queue().jobs
    assert (job.func_name, list(job.args), job.kwargs) == ("durableops.engine.jobs.answer_bell", [], {})
    assert job.timeout == -1
    assert job.ttl is not None
    assert 0 < job.ttl <= bell.MESSAGE_SECONDS


def test_bell_of_a_start_comes_after_its_commit(engine):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            pass

    sleepers(1)
    with transaction.atomic():
        engine.start("one")
        assert bell.queue().count == 0
    assert bell.queue().count == 1


def test_broker_that_is_away_costs_a_start_nothing(engine, nobody_listens):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            pass

    assert bell.ring() == 0
    assert engine.run("one").state == "succeeded"


def test_flushed_broker_loses_no_run(engine, clean_queue):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            pass

    sleepers(1)
    run = engine.start("one")
    from tests.conftest import forget_queue

    forget_queue(clean_queue)
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


# The worker that listens.


@pytest.fixture
def bell_worker(engine):
    bells = bell.queue()
    return BellWorker([bells], name=str(engine.worker.id), connection=bells.connection, listener=engine.worker.listener)


def declare() -> None:
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            pass


@pytest.mark.parametrize("places", [1])
def test_worker_looks_for_work_once_more_after_it_has_announced_its_sleep(engine, bell_worker, monkeypatch):
    """The run is committed between its last look and its announcement: no bell is rung for it, and none is needed."""
    declare()
    real = bell.announce_sleep

    def announced(worker_id):
        if not Run.objects.exists():
            engine.start("one")
            assert bell.queue().count == 0
        real(worker_id)

    monkeypatch.setattr(bell, "announce_sleep", announced)
    sleeping = []

    def sleep(*args, **options):
        sleeping.append(Run.objects.get().state)
        engine.worker.stopping.begin(grace_seconds=1)
        raise DequeueTimeout(1, [])

    monkeypatch.setattr(bell_worker.queue_class, "dequeue_any", sleep)
    assert bell_worker.dequeue_job_and_maintain_ttl(1) is None
    assert sleeping == ["succeeded"]


@pytest.mark.parametrize("places", [1])
def test_worker_that_sleeps_is_woken_by_a_bell_and_says_that_it_is_awake(engine, bell_worker):
    declare()
    bell.announce_sleep(engine.worker.id)
    engine.start("one")
    assert bell.queue().count == 1
    # Its look before the sleep already takes the run: the bell that follows finds nothing to do.
    found = bell_worker.dequeue_job_and_maintain_ttl(1)
    assert found is not None
    assert Run.objects.get().state == "succeeded"
    assert bell.ring() == 0


def test_doubled_bells_do_nothing_twice(engine):
    declare()
    run = engine.start("one")
    assert [engine.drain() for _ in range(3)] == [1, 0, 0]
    run.refresh_from_db()
    assert (run.state, run.fence) == ("succeeded", 1)


def test_stopping_worker_does_not_go_to_sleep(engine, bell_worker):
    engine.worker.stopping.begin(grace_seconds=1.0)
    assert bell_worker.dequeue_job_and_maintain_ttl(1) is None


def test_stop_is_begun_once():
    stopping = Stopping()
    stopping.begin(grace_seconds=10.0)
    since, leave_at = stopping.since, stopping.leave_at
    stopping.begin(grace_seconds=0.0)
    assert (stopping.since, stopping.leave_at) == (since, leave_at)
    assert since is not None
    assert leave_at == since + 5.0

"""PostgreSQL restarted while many runs are being taken back (promise 9). On a server of these tests' own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection
from pytest_django import DjangoDbBlocker

from durableops.engine.claim import claim_next
from durableops.engine.database import Database
from durableops.engine.lease import Lease
from runs.models import IdempotencyRecord, Run, RunEvent, Worker
from tests.acceptance.pool import Desk, Pool
from tests.acceptance.processes import patiently
from tests.acceptance.servers import DatabaseServer, on_server
from tests.factories import make_taker

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.embedded, pytest.mark.django_db(transaction=True)]
RUNS = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatabaseServer]:
    found = DatabaseServer(tmp_path_factory.mktemp("database"))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def record(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, definitions: None, server: DatabaseServer
) -> Iterator[None]:
    """The record on that server, for this process too."""
    url = server.start()
    with django_db_blocker.unblock(), on_server(url):
        yield


@pytest.fixture(scope="module")
def pool(
    record: None, server: DatabaseServer, broker: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    found = Pool(tmp_path_factory.mktemp("pool"), DATABASE_URL=server.url, DATABASE_OWNER_URL="")
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


def owned_by_a_dead_worker(count: int) -> Worker:
    """So many runs claimed under one lease, whose session then ends without a word."""
    database = Database(name="a worker that dies")
    lease = Lease(database)
    lease.register(child_pid=0, versions_json="{}")
    taker = make_taker(lease.id)
    # Tenants take turns: company of another one may be among the first.
    while Run.objects.filter(worker_id=lease.id, workflow="acc-quick").count() < count:
        assert claim_next(database, taker=taker, limit=count), "fewer runs than were started"
    database.close()
    return Worker.objects.get(pk=lease.id)


def succeeded() -> int:
    """How many of the test's runs have; 0 while the server is away."""
    try:
        return Run.objects.filter(state="succeeded", workflow="acc-quick").count()
    except OperationalError:
        connection.close()
        return 0


# C011: recovery is level-triggered: what a restart interrupts is found again, and each effect has one key.
def test_restart_during_recovery_loses_no_run_and_kills_no_worker(pool: Pool, desk: Desk, server: DatabaseServer):
    living = pool.worker.ready()
    pool.worker.park()
    runs = [desk.start("acc-quick", shared=True) for _ in range(RUNS)]
    dead = owned_by_a_dead_worker(RUNS)
    pool.worker.unpark()
    patiently(lambda: succeeded() >= 3, hoping_for="a recovery that is under way")

    server.restart_at_once()
    patiently(lambda: succeeded() == RUNS, timeout=40, hoping_for=f"{RUNS} runs that are done")

    connection.close()
    # The worker lives through it: what it sent it knows, and what it could not commit it commits again. A commit whose
    # answer was lost is looked up, so that even an intent is sent once.
    effects = IdempotencyRecord.objects.filter(run__in=[run.pk for run in runs])
    assert sorted(line["key"] for line in runs[0].world()) == sorted(effects.values_list("key", flat=True))
    assert [effect.attempts for effect in effects] == [1] * RUNS
    assert RunEvent.objects.filter(event="succeed", run__in=[run.pk for run in runs]).count() == RUNS
    assert {run.causes()[0] for run in runs} == {"worker_lost"}
    assert Worker.objects.get(pk=dead.pk).ended_at is not None
    assert list(Worker.objects.filter(kind="worker", ended_at=None).values_list("pk", flat=True)) == [living.pk]
    assert (pool.worker.process.poll(), pool.upkeep.process.poll()) == (None, None)


def test_restart_while_a_step_computes_costs_it_nothing(pool: Pool, desk: Desk, server: DatabaseServer):
    living = pool.worker.ready()
    run = desk.start("acc-three")
    run.until_marked("second", "began")
    server.restart_at_once()
    run.open_gate()
    connection.close()
    run.until("succeeded")

    assert len(run.marks("second", "began")) == 1
    assert len(run.world()) == 1
    assert "lose_worker" not in run.events()
    assert Worker.objects.get(pk=living.pk).ended_at is None

"""The broker flushed, killed, away: it costs seconds, never a run (promise 8). On a broker of these tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from durableops.conf import read_conf
from tests.acceptance.pool import Desk, Pool
from tests.acceptance.processes import patiently
from tests.acceptance.servers import Broker

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.embedded, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def pool(record: None, own_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Started while there is no broker at all."""
    found = Pool(tmp_path_factory.mktemp("pool"), REDIS_URL=own_broker.url)
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


# These tests tell one story, in order: no broker, a broker that comes, one that is flushed, one that is killed.
def test_worker_started_without_a_broker_polls(pool: Pool, desk: Desk):
    runs = [desk.start("acc-quick") for _ in range(5)]
    for run in runs:
        run.until("succeeded")
    assert "the broker is away" in pool.worker.words()


def test_worker_finds_a_broker_that_comes_later(pool: Pool, desk: Desk, own_broker: Broker):
    own_broker.start()
    name = read_conf(pool.environment).queue_name
    with redis.Redis.from_url(own_broker.url) as client:
        patiently(lambda: client.exists(f"durableops:sleepers:{name}"), hoping_for="a worker that announces its sleep")
    desk.start("acc-quick").until("succeeded")


def test_broker_may_be_flushed_again_and_again_while_runs_go_on(pool: Pool, desk: Desk, own_broker: Broker):
    runs = []
    with redis.Redis.from_url(own_broker.url) as client:
        for _ in range(20):
            runs.append(desk.start("acc-quick"))
            client.flushall()
    waiting = desk.start("acc-approval")
    for run in runs:
        run.until("succeeded")
        assert len(run.world()) == 1
    waiting.until("waiting")


def test_broker_may_be_killed_while_runs_go_on_and_come_back_empty(
    pool: Pool, desk: Desk, own_broker: Broker, tmp_path: Path
):
    held = desk.start("acc-three")
    held.until_marked("second", "began")
    own_broker.kill()
    runs = [desk.start("acc-quick") for _ in range(5)]
    held.open_gate()
    for run in [held, *runs]:
        run.until("succeeded")
        assert run.receipts() == []

    own_broker.start()
    with redis.Redis.from_url(own_broker.url) as client:
        client.flushall()
    desk.start("acc-quick").until("succeeded")
    assert pool.upkeep.process.poll() is None

"""Workers whose wall clocks are wrong: leases go by counters, timers by the database's clock (promises 7 and 10)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis

from runs.models import RunEvent, Worker
from tests.acceptance.pool import Desk, Pool, server_now
from tests.acceptance.processes import WorkerProgram

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]
SKEW_SECONDS = 300


@pytest.fixture(scope="module")
def pool(broker: redis.Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Upkeep five minutes behind, one worker five minutes behind, one five minutes ahead."""
    found = Pool(tmp_path_factory.mktemp("pool"), skew=-SKEW_SECONDS)
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def ahead(pool: Pool) -> WorkerProgram:
    found = pool.another_worker(skew=SKEW_SECONDS)
    found.ready()
    return found


# C067
def test_clock_that_is_off_neither_steals_a_lease_nor_fires_a_timer_early_or_late(
    pool: Pool, desk: Desk, ahead: WorkerProgram
):
    runs = [desk.start("acc-quick") for _ in range(40)]
    when = server_now() + timedelta(seconds=1.0)
    sleepers = [desk.start("acc-sleeper", when=when.isoformat()) for _ in range(6)]
    for run in [*runs, *sleepers]:
        run.until("succeeded", timeout=15)

    for sleeper in sleepers:
        first = RunEvent.objects.filter(run_id=sleeper.pk, event="wake").earliest("id")
        assert timedelta(0) <= first.at - when < timedelta(seconds=30)
        assert len(sleeper.marks("sleep", "woke")) == 3
    assert len({line["key"] for run in runs for line in run.world()}) == sum(len(run.world()) for run in runs) == 40
    assert not Worker.objects.exclude(ended_at=None).exists()
    for run in [*runs, *sleepers]:
        row = run.row
        assert row.started_at is not None
        assert row.finished_at is not None
        assert row.created_at <= row.started_at <= row.finished_at
        assert "worker_lost" not in run.causes()

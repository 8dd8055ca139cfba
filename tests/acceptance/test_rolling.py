"""A rolling restart, as `systemctl restart durableops-worker@1 durableops-worker@2` plays it, under load."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest

from runs.models import IdempotencyRecord, Receipt, Run, RunEvent, Worker
from tests.acceptance.company import Company
from tests.acceptance.pool import Desk, Pool, Told
from tests.acceptance.processes import CHECKOUT, WorkerProgram, patiently

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]

UNIT = (CHECKOUT / "deploy/systemd/durableops-worker@.service").read_text()
TIMEOUT_STOP_SECONDS = float(re.findall(r"^TimeoutStopSec=(\d+)", UNIT, re.MULTILINE)[0])


@pytest.fixture(scope="module")
def company(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Here always: errands that are in hand at whatever moment a worker is asked to stop."""
    found = Company(tmp_path_factory.mktemp("company"))
    yield found
    found.go_home()


class Load:
    """Short runs that are started all the time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.runs: list[Told] = []

    def goes_on(self) -> None:
        self.runs.append(self._desk.start("acc-quick", shared=True))


def restart(pool: Pool, old: WorkerProgram, load: Load) -> WorkerProgram:
    """SIGTERM to the parent alone, as KillMode=mixed says; a new one when it has ended. Load goes on all the while."""
    lease = old.ready()
    patiently(
        lambda: Run.objects.filter(worker_id=lease.pk, state="running").count() >= 2,
        hoping_for="a worker with runs in hand",
    )
    began = time.monotonic()
    old.send(signal.SIGTERM)

    def has_ended() -> bool:
        load.goes_on()
        assert time.monotonic() - began < TIMEOUT_STOP_SECONDS, "systemd would have killed it by now"
        return old.process.poll() is not None

    patiently(has_ended, hoping_for="the end of the worker")
    assert old.process.returncode == 0
    assert Worker.objects.get(pk=lease.pk).ended_why == "stopped by its operator"
    new = pool.another_worker()
    new.ready()
    load.goes_on()
    return new


def test_rolling_restart_under_load_loses_nothing_and_sends_nothing_twice(pool: Pool, desk: Desk, company: Company):
    second = pool.another_worker()
    second.ready()
    load = Load(desk)
    endless = [desk.start("acc-nonstop") for _ in range(4)]
    for run in endless:
        run.until("running")

    pool.worker = restart(pool, pool.worker, load)
    restart(pool, second, load)

    for run in endless:
        run.open_gate()
    for run in [*endless, *load.runs]:
        run.until("succeeded")
    mine = [run.pk for run in [*endless, *load.runs]]
    assert len(load.runs) > 10
    assert {cause for run in endless for cause in run.causes()} == {"worker_stopped"}
    effects = IdempotencyRecord.objects.filter(run__in=mine)
    assert sorted(line["key"] for line in load.runs[0].world()) == sorted(effects.values_list("key", flat=True))
    assert len(effects) == len(load.runs)
    everybody = [*mine, *company.runs]
    assert not IdempotencyRecord.objects.filter(run__in=everybody, attempts__gt=1).exists(), "something went out twice"
    assert not Receipt.objects.filter(run__in=everybody, lost_at__isnull=False).exists(), "a worker was lost"
    assert not RunEvent.objects.filter(run__in=everybody, event__in=["lose_worker", "give_up"]).exists()

"""Upkeep that dies, stands still, or is started over and over: recovery is nobody's privilege and repeats nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from django.db import connection
from rq import Queue

from durableops.engine import bell, commands
from runs.models import Run, RunEvent
from tests.acceptance.pool import Desk, Pool
from tests.acceptance.processes import CHECKOUT, Program, backends, patiently

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


def holds_its_locks() -> bool:
    """Whether an upkeep stands in the middle of its transaction, and is not merely between two of its statements."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = %s"
            " AND application_name = 'durableops upkeep' AND clock_timestamp() - state_change > interval '0.1 s')",
            ["idle in transaction"],
        )
        return bool(cursor.fetchone()[0])


def recover_despite(pool: Pool, desk: Desk, number: signal.Signals) -> Program:
    """A worker dies, and the reaper that is about to take its run back gets a signal while it holds the locks."""
    (pool.folder / "release").unlink(missing_ok=True)
    pool.upkeep.send(signal.SIGSTOP)
    reaper = pool.visiting_upkeep(failpoints="reaper_holds_locks=hold")
    victim = pool.visitor()
    pool.worker.park()
    run = desk.start("acc-three")
    run.until_marked("second", "began")
    victim.kill_both()
    patiently(holds_its_locks, hoping_for="a reaper that holds locks")

    reaper.send(number)
    pool.upkeep.send(signal.SIGCONT)
    pool.worker.unpark()
    run.open_gate()
    run.until("succeeded")
    assert run.causes() == ["worker_lost"]
    return reaper


# C017: another one takes the runs back.
def test_reaper_that_is_killed_keeps_no_run(pool: Pool, desk: Desk):
    recover_despite(pool, desk, signal.SIGKILL)


# C017: a stopped process keeps its session, but not for longer than a lease.
def test_reaper_that_stands_still_keeps_no_run_and_goes_on_later(pool: Pool, desk: Desk):
    reaper = recover_despite(pool, desk, signal.SIGSTOP)

    (pool.folder / "release").touch()
    reaper.send(signal.SIGCONT)
    patiently(lambda: "the database is away" in reaper.words(), hoping_for="a reaper that notices what it lost")
    patiently(lambda: backends("durableops upkeep")[1:], hoping_for="the reaper to be back beside the other one")
    assert reaper.process.poll() is None


# C025: one queued run, everything restarted twenty times: still one run, and at most one message.
def test_restarting_everything_twenty_times_multiplies_nothing(pool: Pool, desk: Desk):
    switch = commands.set_switch("all", actor="olga", reason="the queue is paused")
    run = desk.start("acc-quick")
    told = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.scripted.restarts", "20"], cwd=CHECKOUT, env=pool.environment,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["restarted", "20", "times"]

    queue: Queue = bell.queue()
    assert queue.count <= 1
    assert (Run.objects.filter(tenant=desk.tenant).count(), run.row.state, run.row.fence) == (1, "queued", 0)
    assert list(RunEvent.objects.filter(run_id=run.pk).values_list("event", flat=True)) == ["start"]
    commands.lift_switch(switch, actor="olga", reason="go on")
    run.until("succeeded")
    assert len(run.world()) == 1

"""SIGTERM: nothing new is claimed, what is short ends, what is long is handed back, all within the stated grace."""

from __future__ import annotations

import signal
import time

import pytest

from runs.models import Worker
from tests.acceptance.pool import Desk, Pool, Told
from tests.acceptance.processes import WorkerProgram, backends, patiently

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


def in_hand(pool: Pool, desk: Desk, workflow: str, *, grace: str) -> tuple[WorkerProgram, Told]:
    """A run in the hand of a visitor; the pool's worker stands still."""
    visitor = pool.visitor(DURABLEOPS_GRACE_SECONDS=grace)
    pool.worker.park()
    run = desk.start(workflow)
    patiently(lambda: run.marks(what="began"), hoping_for="the step to begin")
    assert visitor.holds(run.row)
    return visitor, run


def terminate(visitor: WorkerProgram) -> Worker:
    """SIGTERM, and wait until the record says that it claims nothing more."""
    lease = visitor.ready()
    visitor.send(signal.SIGTERM)
    patiently(lambda: Worker.objects.get(pk=lease.pk).draining or Worker.objects.get(pk=lease.pk).ended_at,
               hoping_for="a draining worker")  # fmt: skip
    return lease


# C154: no new claim after SIGTERM; the step in hand ends; the rest of the run goes on elsewhere at once.
def test_short_step_ends_after_sigterm_and_nothing_new_is_claimed(pool: Pool, desk: Desk):
    visitor, run = in_hand(pool, desk, "acc-three", grace="20")
    lease = terminate(visitor)
    later = desk.start("acc-quick")
    run.open_gate()

    assert visitor.ended() == 0
    assert later.row.state == "queued"
    handed_back = run.row
    assert (handed_back.state, handed_back.step_id, handed_back.recoveries) == ("queued", "third", 0)
    assert Worker.objects.get(pk=lease.pk).ended_why.startswith("stopped")
    pool.worker.unpark()
    run.until("succeeded")
    later.until("succeeded")
    assert run.causes() == ["worker_stopped"]
    assert len(run.marks("second", "began")) == 1
    assert len(run.world()) == 1


def test_long_step_is_handed_back_within_the_grace(pool: Pool, desk: Desk):
    visitor, run = in_hand(pool, desk, "acc-nonstop", grace="2")
    terminate(visitor)
    assert visitor.ended() == 0
    assert run.row.state == "queued"

    pool.worker.unpark()
    run.until_marked("loop", "began", times=2)
    run.open_gate()
    run.until("succeeded")
    assert run.causes() == ["worker_stopped"]
    # Had the grace run out first, the worker would have been taken for gone.
    assert "hand_back" in run.events()
    assert "lose_worker" not in run.events()


def test_deaf_step_is_taken_away_when_the_grace_is_over_and_released_at_once(pool: Pool, desk: Desk, alone: None):
    visitor, run = in_hand(pool, desk, "acc-three", grace="0.5")
    lease = terminate(visitor)
    visitor.ended()
    ended = Worker.objects.get(pk=lease.pk)
    assert (ended.ended_why, ended.forced_stops) == ("stopped by its operator; the grace was over", 1)
    released = run.row
    assert (released.state, released.recoveries) == ("queued", 0)

    pool.worker.unpark()
    run.open_gate()
    run.until("succeeded")
    [receipt] = run.receipts()
    assert receipt.cause == "worker_stopped"
    assert len(run.world()) == 1


def test_second_sigterm_does_not_wait_for_the_grace(pool: Pool, desk: Desk):
    visitor, run = in_hand(pool, desk, "acc-three", grace="60")
    terminate(visitor)
    began = time.monotonic()
    visitor.send(signal.SIGTERM)
    visitor.ended()
    assert time.monotonic() - began < 30.0
    assert run.row.state == "queued"

    pool.worker.unpark()
    run.open_gate()
    run.until("succeeded")
    assert run.causes() == ["worker_stopped"]


def test_sleeping_worker_and_upkeep_end_at_once(pool: Pool, desk: Desk):
    visitor, upkeep = pool.visitor(DURABLEOPS_GRACE_SECONDS="60"), pool.visiting_upkeep()
    lease = visitor.ready()
    patiently(lambda: backends("durableops upkeep")[1:], hoping_for="a second upkeep")
    visitor.send(signal.SIGTERM)
    upkeep.send(signal.SIGTERM)
    assert (visitor.ended(timeout=20), upkeep.ended(timeout=20)) == (0, 0)
    assert Worker.objects.get(pk=lease.pk).ended_why == "stopped by its operator"

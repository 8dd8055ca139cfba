"""Workers that are killed: their runs go on within seconds, from the last checkpoint, and send nothing new."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from durableops.clock import db_now
from durableops.engine import bell, budgeting, quotas
from durableops.engine.inbound import send_event
from durableops.engine.quotas import Owner
from runs.models import (
    BudgetBlock,
    Checkpoint,
    IdempotencyRecord,
    Reservation,
    Run,
    RunEvent,
    Tenant,
    Wait,
    Worker,
)
from tests.acceptance.pool import Desk, Pool, Told
from tests.acceptance.processes import patiently
from tests.examples.desks import running_desk

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


def held_by_visitor(pool: Pool, desk: Desk, workflow: str = "acc-three", *, failpoints: str = ""):
    """A run in the hand of a visiting worker, while the pool's own worker stands still."""
    visitor = pool.visitor(failpoints=failpoints)
    pool.worker.park()
    run = desk.start(workflow)
    patiently(lambda: visitor.holds(run.row), hoping_for="the visitor to hold the run")
    return visitor, run


# C005, and the lost worker of C002's reverse: no heartbeat is needed for a loss to be noticed.
def test_run_of_a_killed_child_goes_on_in_its_parents_next_child(pool: Pool, desk: Desk):
    run = desk.start("acc-three")
    run.until_marked("second", "began")
    before = Worker.objects.get(pk=str(run.row.worker_id))

    os.kill(before.child_pid, signal.SIGKILL)
    run.until_marked("second", "began", times=2)
    run.open_gate()

    done = run.until("succeeded")
    [receipt] = run.receipts()
    assert (receipt.cause, receipt.step_id, receipt.entered_again) == ("worker_lost", "second", True)
    assert "SIGKILL" in receipt.detail
    assert receipt.recovery_seconds is not None
    assert receipt.recovery_seconds < 10
    assert receipt.worker_id != before.pk
    assert len(run.marks("first")) == 1
    assert len(run.world()) == 1
    assert run.steps() == [(0, "start", ""), (1, "step", "first"), (2, "step", "second"), (3, "finish", "third")]
    assert done.fence == 2


def test_run_of_a_killed_parent_goes_on_with_another_worker(pool: Pool, desk: Desk):
    visitor, run = held_by_visitor(pool, desk)
    run.until_marked("second", "began")
    child = visitor.child

    visitor.send(signal.SIGKILL)
    visitor.ended()
    patiently(lambda: not Path(f"/proc/{child}").exists(), hoping_for="the child to die with its parent")
    pool.worker.unpark()
    run.until_marked("second", "began", times=2)
    run.open_gate()

    run.until("succeeded")
    [receipt] = run.receipts()
    assert receipt.cause == "worker_lost"
    assert receipt.detail, "nothing says how the loss was noticed"
    assert receipt.detection_seconds is not None
    assert receipt.detection_seconds < 10
    assert run.marks("second", "began")[1]["pid"] != child
    assert len(run.world()) == 1


def test_run_goes_on_after_parent_and_child_were_killed_together(pool: Pool, desk: Desk):
    visitor, run = held_by_visitor(pool, desk)
    run.until_marked("second", "began")

    visitor.kill_both()
    pool.worker.unpark()
    run.open_gate()

    run.until("succeeded")
    assert run.causes() == ["worker_lost"]
    assert len(run.marks("first")) == 1
    assert len(run.world()) == 1


def spent_by(tenant: Tenant, unit: str) -> int:
    """Of the tenant's budget for today, all of it wherever it is on record."""
    return sum(int(one.spent) for one in budgeting.of_tenants([tenant.pk]).get(tenant.pk, []) if one.unit == unit)


def test_blocks_of_a_killed_worker_return_and_what_it_had_begun_stays_spent(pool: Pool, desk: Desk):
    budgets = {"day": {"steps": 1000, "compute_seconds": 3600}}
    quotas.set_quota(Owner(tenant=desk.tenant), {"budgets": budgets}, actor="ada", reason="the plan they have")
    # Workers read limits once a second: the first run is one that they count.
    patiently(lambda: desk.start("acc-quick").until("succeeded") and spent_by(desk.tenant, "steps"),
              hoping_for="a run that is counted")  # fmt: skip
    before = spent_by(desk.tenant, "steps")
    visitor, run = held_by_visitor(pool, desk)
    run.until_marked("second", "began")
    [lost] = {block.worker_id for block in BudgetBlock.objects.filter(reservations__isnull=False)}

    visitor.kill_both()
    pool.worker.unpark()
    run.open_gate()

    run.until("succeeded")
    patiently(lambda: not BudgetBlock.objects.filter(worker_id=lost).exists(), hoping_for="its blocks to return")
    # Three steps, and the one that was interrupted twice.
    assert spent_by(desk.tenant, "steps") == before + 4
    patiently(lambda: not Reservation.objects.exists(), hoping_for="everything to be settled")


def intended(run: Told) -> bool:
    return IdempotencyRecord.objects.filter(run_id=run.pk, state="intended").exists()


def sent(run: Told) -> bool:
    return bool(run.world())


def delivered(run: Told) -> bool:
    return bool(run.marks("second", "delivered"))


def running(run: Told) -> bool:
    return bool(Run.objects.filter(pk=run.pk, state="running"))


def committed(run: Told) -> bool:
    return bool(Checkpoint.objects.filter(run_id=run.pk, seq=1))


# C005 (after_claim), C077 (nothing is left taken), and each gap between intent, sending, result and checkpoint.
@pytest.mark.parametrize(
    ("point", "seen", "sendings", "repeated"),
    [
        ("after_claim:first", running, 1, 0),
        ("after_checkpoint:first", committed, 1, 0),
        ("after_intent:second", intended, 1, 1),
        ("after_answer:second", sent, 2, 1),
        ("before_checkpoint:second", delivered, 2, 1),
    ],
)
def test_worker_killed_at_any_point_costs_no_run_and_no_second_key(
    pool: Pool, desk: Desk, point: str, seen: Callable[[Told], bool], sendings: int, repeated: int
):
    visitor, run = held_by_visitor(pool, desk, failpoints=f"{point}=hold")
    run.open_gate()
    patiently(lambda: seen(run), hoping_for=f"a worker held at {point}")

    visitor.kill_both()
    pool.worker.unpark()

    run.until("succeeded")
    assert run.causes() == ["worker_lost"]
    assert len(run.world()) == sendings
    assert len({line["key"] for line in run.world()}) == 1
    [effect] = run.effects()
    assert (effect.state, effect.attempts) == ("succeeded", 1 + repeated)
    assert run.receipts()[0].repeated_effects == repeated
    assert [c for c in run.steps() if c[1] != "start"] == [
        (1, "step", "first"),
        (2, "step", "second"),
        (3, "finish", "third"),
    ]


def test_worker_killed_on_its_way_to_wait_leaves_no_half_wait(pool: Pool, desk: Desk):
    visitor, run = held_by_visitor(pool, desk, "acc-suspends", failpoints="before_suspend:wait=hold")
    run.until_marked("wait", "began")
    assert not Wait.objects.filter(run_id=run.pk).exists()

    visitor.kill_both()
    pool.worker.unpark()
    run.until("waiting")
    send_event("go", tenant=desk.tenant, actor="tests", correlation=str(run.pk), payload="came")

    run.until("succeeded")
    assert run.causes() == ["worker_lost", "event"]


def is_asleep(worker_id: UUID) -> bool:
    bells = bell.queue()
    return bells.connection.zscore(f"durableops:sleepers:{bells.name}", str(worker_id)) is not None


# C008: the bell is taken from the queue and its taker dies before it claims anything.
def test_bells_that_die_with_their_takers_cost_no_run(pool: Pool, desk: Desk, alone: None):
    # One place: with more it would sleep, and take bells, while runs are in its hand.
    visitor = pool.visitor(failpoints="after_bell_taken=kill", DURABLEOPS_CONCURRENCY="1")
    pool.worker.park()
    runs: list[Told] = []
    deaths = 0
    while len(runs) < 20:
        taker = visitor.ready().pk
        # Asleep: one that is just starting finds the runs by itself and takes no bell.
        patiently(lambda: is_asleep(taker), hoping_for="a worker that sleeps")  # noqa: B023
        batch = [desk.start("acc-quick", shared=True) for _ in range(5)]
        runs += batch
        patiently(lambda: all(run.row.is_terminal for run in batch), hoping_for="five runs that are done")  # noqa: B023
        deaths += Worker.objects.filter(pk=taker, ended_why__contains="SIGKILL").count()
    pool.worker.unpark()

    for run in runs:
        run.until("succeeded")
    assert deaths >= 2
    assert all(run.row.step_attempts == 0 and run.causes() == [] for run in runs)
    assert len(runs[0].world()) == 20


# C028 is the API's; this is its downstream half: one key at the desk, however often the worker dies.
def test_worker_killed_while_its_request_is_on_the_wire_repeats_the_same_key(pool: Pool, desk: Desk, tmp_path: Path):
    with running_desk(tmp_path / "tickets") as tickets:
        tickets.fault("delay", seconds=1.0)
        visitor = pool.visitor(TICKET_DESK_URL=tickets.url)
        other = pool.visitor(TICKET_DESK_URL=tickets.url)
        pool.worker.park()
        other.park()
        run = desk.start("acc-desk")
        patiently(lambda: len(tickets.requests()) == 1, hoping_for="the request to arrive")

        visitor.kill_both()
        other.unpark()
        run.until("succeeded")

        requests, opened = tickets.requests(), tickets.tickets()
    pool.worker.unpark()
    assert len(opened) == 1
    [effect] = run.effects()
    repeats = list(RunEvent.objects.filter(run_id=run.pk, event="effects_repeated").order_by("id"))
    # While the first request is being answered, the desk tells the second one to come again: that too is named.
    assert [r["key"] for r in requests] == [effect.key] * effect.attempts
    assert len(repeats) == effect.attempts - 1
    assert (repeats[0].data["cause"], repeats[0].data["effects"]) == ("worker_lost", [effect.pk])
    assert all("409" in event.data["cause"] for event in repeats[1:])


def charged_by_a_worker_that_died(pool: Pool, desk: Desk, *, fails: bool = False) -> Told:
    """The charge went out, and its worker died before the answer was kept."""
    visitor = pool.visitor(failpoints="after_answer:pay=hold")
    pool.worker.park()
    run = desk.start("acc-charge", fails=fails)
    patiently(run.world, hoping_for="a charge that went out")
    visitor.kill_both()
    # The bank forgets quickly, but a death on this machine is noticed more quickly still.

    def forgotten() -> bool:
        ends = [effect.window_ends_at for effect in run.effects()]
        return all(end is not None and end < db_now() for end in ends)

    patiently(forgotten, hoping_for="a closed key window")
    pool.worker.unpark()
    return run


# C031: the other side has forgotten the key; asking again could charge twice, so a person is asked.
def test_call_past_its_key_window_is_in_doubt_and_never_sent_again(pool: Pool, desk: Desk):
    run = charged_by_a_worker_that_died(pool, desk)
    run.until("in_doubt")
    assert len(run.world()) == 1
    assert [effect.state for effect in run.effects()] == ["in_doubt"]
    assert "effect_in_doubt" in run.events()


# C032: the request differs in something volatile; the slot does not, so the difference is shown and nothing is sent.
def test_request_that_differs_on_the_second_attempt_is_a_conflict_and_not_sent(pool: Pool, desk: Desk):
    run = charged_by_a_worker_that_died(pool, desk, fails=True)
    failed = run.until("failed")
    assert failed.error_class.endswith("EffectConflict")
    assert len(run.world()) == 1
    assert "effect_conflict" in run.events()


# C007: the record says succeeded; whatever RQ's own registries believe afterwards changes nothing.
def test_finished_run_stays_finished_when_its_worker_dies_before_rq_knows(pool: Pool, desk: Desk, broker):
    from rq import Queue
    from rq.registry import clean_registries

    visitor, run = held_by_visitor(pool, desk, "acc-quick", failpoints="after_checkpoint:work=hold")
    run.until("succeeded")
    visitor.kill_both()
    pool.worker.unpark()

    queue: Queue = bell.queue()
    clean_registries(queue)
    after = desk.start("acc-quick")
    after.until("succeeded")
    assert run.row.state == "succeeded"
    assert run.events().count("succeed") == 1
    assert run.causes() == []
    patiently(
        lambda: not Worker.objects.filter(pid=visitor.pid, ended_at=None).exists(), hoping_for="the dead lease to end"
    )


# C103's runaway: a run that kills its workers stops, says why, and takes nobody with it.
def test_run_that_kills_its_workers_is_stopped_with_a_clear_reason(pool: Pool, desk: Desk):
    poison = desk.start("acc-poison")
    other = desk.start("acc-quick")

    failed = poison.until("failed")
    assert (failed.error_class, failed.recoveries) == ("WorkerLost", 2)
    assert "deadly" in failed.error_message
    assert "2 times in a row" in failed.error_message
    assert len(poison.marks("harmless")) == 1
    assert len(poison.marks("deadly", "began")) == 2
    other.until("succeeded")

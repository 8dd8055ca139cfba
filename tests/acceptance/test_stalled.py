"""Processes that stand still, hold the interpreter or run over their time: who is taken for dead, and who is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection

from durableops.conf import get_conf, read_conf
from durableops.engine import settling
from durableops.engine.sender import whether_quiet
from durableops.engine.settlements import Settlement
from durableops.errors import TransitionRefused
from runs.models import Checkpoint, Doubt, IdempotencyRecord, RunEvent, Worker
from tests.acceptance.pool import Desk, Pool
from tests.acceptance.processes import backends, patiently
from tests.examples.desks import running_desk

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


# C019: A stands still past its lease, B goes on and commits, A wakes and wants to write and to send.
def test_worker_that_wakes_after_its_lease_is_refused_and_the_chain_stays_linear(pool: Pool, desk: Desk):
    visitor = pool.visitor()
    pool.worker.park()
    run = desk.start("acc-three")
    run.until_marked("second", "began")
    late_worker = visitor.ready()
    child = visitor.stop()

    patiently(lambda: Worker.objects.get(pk=late_worker.pk).ended_at, hoping_for="the lease to run out")
    pool.worker.unpark()
    run.until_marked("second", "began", times=2)
    run.open_gate()
    run.until("succeeded")

    os.kill(child, signal.SIGCONT)
    visitor.send(signal.SIGCONT)
    patiently(lambda: "late_result_rejected" in run.events(), hoping_for="the late write to be refused")

    refused = run.event("late_result_rejected")
    assert (refused.worker_id, refused.step_id, refused.fence) == (late_worker.pk, "second", 1)
    rows = Checkpoint.objects.filter(run_id=run.pk).order_by("seq").values_list("seq", "fence", "worker_id")
    assert [(seq, fence) for seq, fence, _ in rows] == [(0, 0), (1, 1), (2, 2), (3, 2)]
    assert late_worker.pk not in [worker for seq, _, worker in rows if seq > 1]
    assert [line["pid"] for line in run.world()] != [child]
    assert len(run.world()) == 1
    assert run.causes() == ["worker_lost"]
    assert "counter stood still" in run.receipts()[0].detail


# C019: A stands still between intent and send, somebody settles that it did not happen, B sends it, A wakes.
def test_legacy_sender_that_wakes_after_somebody_settled_sends_nothing(pool: Pool, desk: Desk):
    visitor = pool.visitor()
    pool.worker.park()
    run = desk.start("acc-legacy")
    run.until_marked("post", "in hand")
    child = visitor.stop()

    doubt = patiently(
        lambda: Doubt.objects.filter(run_id=run.pk).first(), hoping_for="a doubt about what A has in hand"
    )
    with pytest.raises(TransitionRefused, match="may send it or wait for its answer"):
        say_it_did_not_happen(doubt)
    run.open_gate()
    patiently(lambda: is_quiet(doubt), hoping_for="the time after which nobody can be sending it")
    say_it_did_not_happen(doubt)
    pool.worker.unpark()
    run.until("succeeded")

    os.kill(child, signal.SIGCONT)
    visitor.send(signal.SIGCONT)
    patiently(lambda: "late_result_rejected" in run.events(), hoping_for="the late sender to be refused")
    [sent] = run.world()
    assert sent["pid"] != child
    assert [mark["pid"] == child for mark in run.marks("post", "in hand")] == [True, False]
    [effect] = run.effects()
    assert (effect.state, effect.attempts) == ("succeeded", 2)
    assert "settle" in run.events()


def say_it_did_not_happen(doubt: Doubt | None) -> None:
    assert doubt is not None
    settlement = Settlement(how="did_not")
    settling.settle(
        doubt.pk, tenant=doubt.tenant, actor="ann", reason="they have no such invoice", settlement=settlement
    )


def is_quiet(doubt: Doubt | None) -> bool:
    assert doubt is not None
    with connection.cursor() as cursor:
        return not whether_quiet(cursor, IdempotencyRecord.objects.get(pk=doubt.effect_id))


def is_same_life(worker: Worker, run_id: UUID) -> bool:
    """Whether the worker lived through the run, which it alone had."""
    losses = RunEvent.objects.filter(run_id=run_id, event__in=["lose_worker", "give_up"]).count()
    return losses == 0 and Worker.objects.get(pk=worker.pk).ended_at is None


# C004: a busy loop in Python and then one call of C code that keeps the interpreter, both longer than the lease.
def test_worker_whose_interpreter_is_held_longer_than_its_lease_is_not_dead(pool: Pool, desk: Desk):
    lease = read_conf(pool.environment).lease_seconds
    worker = pool.worker.ready()
    run = desk.start("acc-busy", seconds=lease * 1.2)

    run.until("succeeded", timeout=40)
    held = float(str(Checkpoint.objects.get(run_id=run.pk, kind="finish").output))
    assert held > lease
    assert is_same_life(worker, run.pk)
    assert [m["attempt"] for m in run.marks()] == [1, 1]
    assert run.receipts() == []


# C002: silence is no loss; the provider sees one call.
def test_long_silent_call_is_made_once(pool: Pool, desk: Desk, tmp_path: Path):
    lease = read_conf(pool.environment).lease_seconds
    with running_desk(tmp_path / "tickets") as tickets:
        tickets.fault("delay", seconds=lease * 2)
        visitor = pool.visitor(TICKET_DESK_URL=tickets.url)
        worker = visitor.ready()
        pool.worker.park()
        run = desk.start("acc-desk")
        run.until("succeeded")
        requests = tickets.requests()
    pool.worker.unpark()
    assert len(requests) == 1
    assert is_same_life(worker, run.pk)
    assert run.receipts() == []
    assert run.effects()[0].attempts == 1


# C001: the first attempt returns after its timeout; what it returns is refused and the next step runs once.
def test_late_result_of_a_timed_out_attempt_is_refused(pool: Pool, desk: Desk):
    run = desk.start("acc-late")
    run.until("succeeded")

    assert [m["attempt"] for m in run.marks("slow")] == [1, 2]
    assert len(run.lines("ledger")) == 1
    assert Checkpoint.objects.get(run_id=run.pk, step_id="slow").output == '"attempt 2"'
    assert [e for e in run.events() if e in ("step_timeout", "late_result_rejected", "retry_later")] == [
        "step_timeout", "late_result_rejected", "retry_later",
    ]  # fmt: skip
    fired = run.event("step_timeout").data
    assert (fired["clock"], fired["limit_seconds"], fired["cause"]) == ("step_timeout", 0.4, "design_error")
    assert fired["elapsed_seconds"] >= 0.4


# C050: a step that swallows everything loses its run first, then its process; the policy decides what follows.
def test_step_that_swallows_its_timeout_is_killed_and_the_run_goes_on_by_policy(pool: Pool, desk: Desk):
    killed = pool.worker.ready()
    run = desk.start("acc-stubborn")
    run.until("succeeded")

    assert [m["attempt"] for m in run.marks("hold_on")] == [1, 2]
    assert len(run.marks("after")) == 1
    # Its process may have taken it once more before it went home, and handed it back untouched.
    assert run.causes() in (["step_timeout"], ["step_timeout", "worker_stopped"])
    fired = run.event("step_timeout").data
    assert (fired["clock"], fired["next_state"]) == ("step_timeout", "queued")
    assert "did not stop at its timeout" in Worker.objects.get(pk=killed.pk).ended_why
    assert Checkpoint.objects.get(run_id=run.pk, step_id="hold_on").output == '"gave in"'


def test_step_that_never_stops_fails_its_run_when_its_attempts_are_spent(pool: Pool, desk: Desk):
    run = desk.start("acc-stubborn", fails=True)
    failed = run.until("failed")
    assert failed.error_class == "durableops.errors.StepTimeout"
    assert [m["attempt"] for m in run.marks("hold_on")] == [1, 2]
    assert run.marks("after") == []


# C152: no connection crosses a fork; each process has its own, also after the child was replaced.
def test_parent_and_child_share_no_database_session(pool: Pool, desk: Desk):
    pool.worker.kill_child()
    pool.worker.ready()
    for run in [desk.start("acc-quick", shared=True) for _ in range(10)]:
        run.until("succeeded")
    # How many connections the runs needed at once is chance, up to the pool's size. That each is known to exactly one
    # process is not: one that had come through the fork would be a session that no process counts.
    told = patiently(
        lambda: Worker.objects.filter(pk=pool.worker.ready().pk, connections=sum(sessions().values())).first(),
        hoping_for="a worker that tells as many connections as it has sessions",
    )
    assert told is not None
    assert sessions()["supervisor"] == 1
    assert 1 <= sessions()["worker"] <= get_conf().connections
    assert "OperationalError" not in pool.worker.words()


def sessions() -> dict[str, int]:
    """Sessions of the pool's only worker: its parent's, its runs', its attendant's."""
    return {name: len(backends(f"durableops {name}")) for name in ("supervisor", "worker", "attendant")}

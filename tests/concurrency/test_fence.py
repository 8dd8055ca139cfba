"""One writer: a late worker is refused, and the fence is checked under the row's lock, not in a snapshot."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from django.db import connection

from durableops import State, step, tool, workflow
from runs import fenced
from runs.claiming import claim
from runs.fenced import CheckpointRow, FencedWrite
from runs.models import Checkpoint, IdempotencyRecord, Run, RunEvent, Tenant
from tests.factories import events_of, make_run, make_taker, make_worker
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    pass


def next_step(run: Run) -> FencedWrite:
    assert run.worker_id is not None
    row = CheckpointRow(kind="step", step_id="first", next_step="second", state=None)
    return FencedWrite(
        run_id=run.pk, fence=run.fence, seq=run.head_seq, worker_id=run.worker_id, step_id="first", checkpoint=row
    )


def test_late_worker_cannot_commit_after_a_newer_claim(database):  # C019
    run = make_run(state="running")
    late = next_step(run)
    Run.objects.filter(pk=run.pk).update(state="queued", worker=None, due_at=run.started_at)
    [newer] = database.retrying(lambda cursor: claim(cursor, make_taker(make_worker())))

    assert database.retrying(lambda cursor: fenced.execute(cursor, late)) is None
    assert newer.fence == late.fence + 1
    assert Checkpoint.objects.filter(run=run).count() == 1


def test_commit_that_began_before_the_newer_claim_committed_is_refused_as_well(database, second):
    """The trap: in its snapshot the old fence still stands. Only the row's lock tells it better."""
    run = make_run(state="running")
    other = make_worker()
    with holding(
        second,
        "UPDATE runs_run SET fence = fence + 1, worker_id = %s WHERE id = %s",
        [other.pk, run.pk],
    ):
        late = Background(lambda: database.retrying(lambda cursor: fenced.execute(cursor, next_step(run))))
        until_blocked()
    assert late.result() is None
    assert Checkpoint.objects.filter(run=run).count() == 1
    run.refresh_from_db()
    assert (run.fence, run.head_seq, run.worker_id) == (2, 0, other.pk)


@pytest.mark.parametrize("part", ["intents", "events", "logs", "waits"])
def test_write_without_a_checkpoint_waits_for_the_lock_and_is_refused_too(database, second, part):
    """These do not update the run; they must lock it all the same."""
    run = make_run(state="running")
    row: Any = {
        "intents": {
            "n": 0,
            "slot": "0" * 64,
            "key": "k",
            "request_hash": "r",
            "request_summary": {},
            "step_id": "first",
            "tool": "t",
            "resource": "r",
            "author_key": "",
            "safety": "keyed",
            "scope": "run",
            "send_seconds": 1.0,
            "window_seconds": None,
        },
        "events": {"n": 0, "event": "noted", "reason": "", "data": {}, "moves": False},
        "logs": {"n": 0, "at": "2026-01-01T00:00:00Z", "level": "info", "message": "m", "fields": {}},
        "waits": {
            "kind": "event",
            "name": "go",
            "author_key": "",
            "correlation": "",
            "since": None,
            "due_seconds": None,
            "expires_seconds": None,
            "on_timeout": "raise",
            "turns": 0,
            "question": "",
            "facts": "",
            "facts_hash": "",
        },
    }[part]
    assert run.worker_id is not None
    write = FencedWrite(run_id=run.pk, fence=1, seq=0, worker_id=run.worker_id, step_id="first")
    setattr(write, part, [row])
    with holding(second, "UPDATE runs_run SET fence = fence + 1 WHERE id = %s", [run.pk]):
        late = Background(lambda: database.retrying(lambda cursor: fenced.execute(cursor, write)))
        until_blocked()
    assert late.result() is None
    assert not RunEvent.objects.filter(event="noted").exists()
    assert not IdempotencyRecord.objects.exists()
    assert run.waits.count() == run.log_lines.count() == 0


def test_holder_that_comes_first_keeps_the_newer_claim_waiting_and_is_not_lost(database, second):
    run = make_run(state="running")
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [run.pk])
        write = Background(lambda: database.retrying(lambda cursor: fenced.execute(cursor, next_step(run))))
        until_blocked()
        second.execute("UPDATE runs_run SET paused = true WHERE id = %s", [run.pk])
    written = write.result()
    assert written.head_seq == 1
    assert written.paused


def test_local_effect_of_a_late_worker_is_not_made(engine):  # C019
    """The author's own table and the effect's record stand under the run's fence, in one transaction."""
    entered, go_on = threading.Event(), threading.Event()

    @tool(safety="local", name="mark")
    def mark(call, *, slug: str):
        Tenant.objects.create(slug=slug, name=slug)
        return {"slug": slug}

    @workflow(name="local-late", version=1, state=Nothing)
    class Late:
        @step
        def a(run: Any):
            if run.attempt == 1:
                entered.set()
                assert go_on.wait(20)
            run.call(mark, resource="x", slug=f"attempt-{run.attempt}")

    run = engine.start("local-late")
    first = Background(engine.worker.drain)
    assert entered.wait(20)
    engine.lose_worker()
    engine.drain()
    go_on.set()
    first.result()

    run.refresh_from_db()
    assert run.state == "succeeded"
    assert list(Tenant.objects.exclude(slug="acme").values_list("slug", flat=True)) == ["attempt-2"]
    assert "late_result_rejected" in events_of(run)


def test_late_result_of_a_worker_declared_dead_is_refused_and_told_on_the_timeline(engine):  # C001 C019
    entered, go_on = threading.Event(), threading.Event()
    ledger = []

    @workflow(name="late", version=1, state=Nothing)
    class Late:
        @step
        def a(run: Any):
            if run.attempt == 1:
                entered.set()
                assert go_on.wait(20)
            return run.attempt

        @step
        def b(run: Any):
            ledger.append(run.attempt)

    run = engine.start("late")
    lost = engine.worker.id
    first = Background(engine.worker.drain)
    assert entered.wait(20)
    engine.lose_worker()
    engine.drain()
    go_on.set()
    first.result()

    run.refresh_from_db()
    assert run.state == "succeeded"
    assert ledger == [1]
    chain = Checkpoint.objects.filter(run=run).order_by("seq").values_list("seq", "output", "fence")
    assert list(chain) == [(0, None, 0), (1, "2", 2), (2, None, 2)]
    refused = RunEvent.objects.get(run=run, event="late_result_rejected")
    assert refused.worker_id == lost
    assert (refused.fence, refused.step_id, refused.attempt) == (1, "a", 1)


def test_two_workers_that_claim_together_never_get_the_same_run():
    """Thirty runs, four claimers at once: each run once, no run left."""
    from durableops.engine.database import Database

    runs = {make_run().pk for _ in range(30)}
    workers = [make_worker() for _ in range(4)]
    ready = threading.Barrier(4)

    def take_all(worker):
        database, taken = Database(name="claimer"), []
        ready.wait(10)
        while found := database.retrying(lambda cursor: claim(cursor, make_taker(worker.pk))):
            taken += [each.run_id for each in found]
        database.close()
        return taken

    taken = [each for work in [Background(partial(take_all, worker)) for worker in workers] for each in work.result()]
    assert len(taken) == 30
    assert set(taken) == runs
    assert set(Run.objects.values_list("fence", flat=True)) == {1}


def test_idle_transaction_that_holds_one_run_does_not_stop_the_queue(database, second):  # C160
    stuck, free = make_run(priority=50), [make_run() for _ in range(5)]
    with holding(second, "UPDATE runs_run SET paused_by = 'somebody' WHERE id = %s", [stuck.pk]):
        taken = database.retrying(lambda cursor: claim(cursor, make_taker(make_worker()), limit=50))
        assert {each.run_id for each in taken} == {run.pk for run in free}
    [last] = database.retrying(lambda cursor: claim(cursor, make_taker(make_worker()), limit=50))
    assert last.run_id == stuck.pk


def test_claim_sees_a_pause_that_was_committed_while_it_looked(database, second):
    run = make_run()
    with holding(second, "UPDATE runs_run SET paused = true WHERE id = %s", [run.pk]):
        assert database.retrying(lambda cursor: claim(cursor, make_taker(make_worker()))) == []
    assert database.retrying(lambda cursor: claim(cursor, make_taker(make_worker()))) == []


def test_worker_declared_dead_between_two_claims_gets_nothing_more(engine):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def a(run: Any):
            pass

    engine.start("one")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_worker SET ended_at = now(), ended_why = 'x' WHERE id = %s", [engine.worker.id])
    assert engine.drain() == 0
    assert Run.objects.get().state == "queued"

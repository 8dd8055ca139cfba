"""Shared commits: several runs write at one moment, each is judged by its own fence, and one's trouble is its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from durableops.engine.committer import Committer
from durableops.engine.database import ConnectionLost
from runs.fenced import CheckpointRow, FencedWrite
from runs.models import Checkpoint, Run
from tests.factories import make_run, make_worker
from tests.fixtures.engine import Background, terminate, until_blocked
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def committer() -> Iterator[Committer]:
    made = Committer(name="test committer")
    yield made
    made.close()


def checkpoint_of(run: Run, **over) -> FencedWrite:
    row = CheckpointRow(kind="step", step_id="first", next_step="second", state=None)
    values: dict[str, Any] = {
        "run_id": run.pk,
        "fence": run.fence,
        "seq": 0,
        "worker_id": run.worker_id,
        "step_id": "first",
    }
    return FencedWrite(**(values | over), checkpoint=row)


def together(committer: Committer, second, writes: list[FencedWrite], first: Run) -> list[Background]:
    """Let a first write wait for a lock while all others are put down; they then go into one commit."""
    with second.transaction():
        second.execute("SELECT 1 FROM runs_worker WHERE id = %s FOR UPDATE", [first.worker_id])
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [first.pk])
        leader = Background(lambda: committer.commit(checkpoint_of(first)))
        until_blocked()
        others = [Background(partial(committer.commit, write)) for write in writes]
        eventually(lambda: len(committer._waiting) == len(writes) or not leader.is_alive())
    leader.result()
    return others


@pytest.fixture
def patient(monkeypatch) -> None:
    """Locks are waited for as long as it takes, so that the others can gather behind the first."""
    monkeypatch.setattr("durableops.engine.committer.LOCK_MILLISECONDS", 0)


def test_writes_that_wait_for_each_other_become_one_commit(patient, second):
    committer = Committer(name="test committer")
    worker = make_worker()
    first, *others = [make_run(state="running", worker=worker) for _ in range(9)]
    found = together(committer, second, [checkpoint_of(run) for run in others], first)
    answers = [one.result() for one in found]
    assert all(written.head_seq == 1 for written, _ in answers)
    assert (committer.commits, committer.writes) == (2, 9)
    assert Checkpoint.objects.filter(run__in=others, seq=1).count() == 8
    committer.close()


def test_write_under_a_stale_fence_is_refused_and_its_neighbours_are_written(patient, second):
    committer = Committer(name="test committer")
    worker = make_worker()
    first, stale, good = [make_run(state="running", worker=worker, fence=3) for _ in range(3)]
    late, fine = together(committer, second, [checkpoint_of(stale, fence=2), checkpoint_of(good)], first)
    assert late.result() == (None, None)
    assert fine.result()[0].head_seq == 1
    committer.close()


def test_write_the_database_refuses_sends_every_one_of_its_commit_to_write_alone(patient, second):
    committer = Committer(name="test committer")
    worker = make_worker()
    first, bad, good = [make_run(state="running", worker=worker) for _ in range(3)]
    broken = checkpoint_of(bad)
    assert broken.checkpoint is not None
    broken.checkpoint.step_id = "x" * 500
    found = together(committer, second, [broken, checkpoint_of(good)], first)
    assert [one.result() for one in found] == [None, None]
    assert not Checkpoint.objects.filter(run__in=[bad, good], seq=1).exists()
    committer.close()


def test_locked_row_is_not_waited_for_by_others(committer, second):
    run = make_run(state="running", worker=make_worker())
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        assert committer.commit(checkpoint_of(run)) is None
    written, _ = committer.commit(checkpoint_of(run))
    assert written.head_seq == 1


def test_lost_answer_is_told_to_each_that_wrote(committer):
    run = make_run(state="running", worker=make_worker())
    committer.commit(checkpoint_of(run))
    assert terminate("durableops test committer") == 1
    with pytest.raises(ConnectionLost):
        committer.commit(checkpoint_of(run, seq=1))
    written, _ = committer.commit(checkpoint_of(run, seq=1))
    assert written.head_seq == 2


def test_crowd_of_writers_loses_nobody(committer):
    worker = make_worker()
    runs = [make_run(state="running", worker=worker) for _ in range(24)]
    start = threading.Barrier(len(runs))

    def write(run: Run) -> None:
        start.wait(20)
        for seq in range(10):
            answer = committer.commit(checkpoint_of(run, seq=seq))
            assert answer is not None
            assert answer[0] is not None

    for one in [Background(partial(write, run)) for run in runs]:
        one.result()
    assert Checkpoint.objects.filter(run__in=runs, seq__gt=0).count() == 240
    assert committer.writes == 240
    assert committer.commits < 240

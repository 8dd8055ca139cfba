"""The commit that ends a run and takes the next one: both happen, or neither."""

from __future__ import annotations

import pytest

from runs import fenced
from runs.claiming import claimed_with, with_next
from runs.fenced import CheckpointRow, FencedWrite
from runs.models import RunEvent
from tests.factories import make_run, make_taker, make_worker

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def finish(database):
    """Say that the last step of a run is done, through a connection of the engine's kind."""

    def finish(run, **over):
        row = CheckpointRow(kind="finish", step_id="first", next_step="", state=None, output="1")
        values = {
            "run_id": run.pk,
            "fence": run.fence,
            "seq": run.head_seq,
            "worker_id": run.worker_id,
            "step_id": "first",
        }
        write = FencedWrite(**(values | over), transition="succeed", checkpoint=row)

        def together(cursor):
            [numbered] = cursor.numbered(1)
            fenced.send(numbered, write, with_next(make_taker(run.worker_id)))
            written, row = fenced.answer(numbered)
            return written, claimed_with(row)

        return database.retrying(together)

    return finish


def test_finish_takes_the_next_run_with_the_same_commit(finish):
    worker = make_worker()
    ended, waiting = make_run(state="running", worker=worker, fence=3), make_run(state_json='{"a":  1}')
    written, taken = finish(ended)
    ended.refresh_from_db()
    waiting.refresh_from_db()
    assert (written.state, ended.state, ended.worker_id) == ("succeeded", "succeeded", None)
    assert (taken.run_id, taken.fence, taken.state_json) == (waiting.pk, 1, '{"a":  1}')
    assert (waiting.state, waiting.worker_id) == ("running", worker.pk)
    assert RunEvent.objects.get(run=waiting).event == "claim"


def test_finish_with_nothing_to_take_is_a_finish(finish):
    written, taken = finish(make_run(state="running", worker=make_worker()))
    assert (written.state, taken) == ("succeeded", None)


def test_finish_under_a_stale_fence_takes_no_run(finish):
    held, waiting = make_run(state="running", worker=make_worker(), fence=3), make_run()
    assert finish(held, fence=2) == (None, None)
    waiting.refresh_from_db()
    assert (waiting.state, waiting.fence) == ("queued", 0)


def test_draining_worker_takes_no_run_with_its_finish(finish):
    waiting = make_run()
    written, taken = finish(make_run(state="running", worker=make_worker(draining=True)))
    waiting.refresh_from_db()
    assert (written.state, taken, waiting.state) == ("succeeded", None, "queued")

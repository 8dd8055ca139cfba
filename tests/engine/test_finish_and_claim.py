"""A worker that goes on: the commit that ends a run takes the next, and no run is lost when its answer is."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import State, step, workflow
from durableops.engine import commit
from durableops.engine.database import ConnectionLost
from runs import claiming
from tests.factories import events_of

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    pass


@pytest.fixture
def one_step(engine):
    @workflow(name="one", version=1, state=Nothing)
    class One:
        @step
        def only(run: Any):
            return 1


@pytest.mark.parametrize("places", [1])
def test_worker_asks_for_work_once_however_many_runs_there_are(engine, one_step, monkeypatch):
    asked: list[int] = []
    real = claiming.take

    def counted(*given: Any, **named: Any):
        asked.append(1)
        return real(*given, **named)

    monkeypatch.setattr(claiming, "take", counted)
    runs = [engine.start("one") for _ in range(3)]

    assert engine.drain() == 3

    # Once for the first run, and once when the last one took nothing with it: without quotas there is no other way.
    assert len(asked) == 2
    for run in runs:
        assert events_of(run) == ["start", "claim", "succeed"]


@pytest.mark.parametrize("places", [1])
def test_run_taken_by_a_commit_whose_answer_was_lost_goes_on(engine, one_step, monkeypatch):
    real = commit._once
    breaks = [True]

    def break_after(database, write, *, attached=None, **more):
        answer = real(database, write, attached=attached, **more)
        if attached is not None and breaks:
            breaks.clear()
            raise ConnectionLost("the answer was lost")
        return answer

    monkeypatch.setattr(commit, "_once", break_after)
    first, second = engine.start("one"), engine.start("one")

    engine.drain()

    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("succeeded", "succeeded")
    assert events_of(first) == ["start", "claim", "succeed"]
    assert events_of(second) == ["start", "claim", "hand_back", "claim", "succeed"]


def test_worker_that_stops_takes_no_run_with_its_finish(engine):
    @workflow(name="last", version=1, state=Nothing)
    class Last:
        @step
        def only(run: Any):
            engine.worker.stopping.begin(grace_seconds=60)

    first, second = engine.start("last"), engine.start("last")
    engine.drain()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == ("succeeded", "queued")

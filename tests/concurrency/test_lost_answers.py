"""The answer to a commit is lost: the backend dies after, or before, it committed. What happened is found out, once."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from durableops import Page, Retry, State, step, tool, workflow
from durableops.engine import commit
from durableops.engine.database import ConnectionLost
from runs import fenced
from runs.models import Checkpoint, IdempotencyRecord, LogLine, Run, RunEvent
from tests.factories import events_of
from tests.fixtures.engine import terminate

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=[1, 16], ids=["one place", "sixteen places"])
def places(request: pytest.FixtureRequest) -> int:
    return int(request.param)


AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Count(State):
    n: int = 0


@pytest.fixture
def break_commit(monkeypatch):
    """Break the engine's connection around one of its commits: `after` it landed, or `before` it was sent."""

    def arm(number: int, *, moment: str) -> None:
        real, seen = commit._once, [0]

        def breaking(database: Any, write: Any, **more: Any) -> Any:
            seen[0] += 1
            if seen[0] != number:
                return real(database, write, **more)
            if moment == "after":
                real(database, write, **more)
                break_every_session_of(database)
                raise ConnectionLost("the answer was lost")
            break_every_session_of(database)
            return real(database, write, **more)

        monkeypatch.setattr(commit, "_once", breaking)

    return arm


def break_every_session_of(database: Any) -> None:
    """End the sessions of a worker: all it has, and it has at least one."""
    ended, had = terminate("durableops test worker"), database.open_connections
    # With sixteen places another of its threads may open one, or notice the end of one, between the two counts.
    assert ended >= 1
    assert ended == had or database.committer is not None


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


@pytest.mark.parametrize("moment", ["after", "before"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_step_is_committed_once_whatever_commit_loses_its_answer(engine, break_commit, number, moment):
    entered = []

    @workflow(name="three", version=1, state=Count)
    class Three:
        @step
        def a(run: Any):
            entered.append("a")
            run.state.n += 1

        @step
        def b(run: Any):
            entered.append("b")
            run.state.n += 1

        @step
        def c(run: Any):
            entered.append("c")
            run.state.n += 1
            return run.state.n

    break_commit(number, moment=moment)
    run = engine.run("three")
    assert (run.state, output(run)) == ("succeeded", 3)
    assert entered == ["a", "b", "c"]
    assert list(Checkpoint.objects.filter(run=run).order_by("seq").values_list("seq", flat=True)) == [0, 1, 2, 3]
    assert events_of(run).count("succeed") == 1
    assert "late_result_rejected" not in events_of(run)


@pytest.mark.parametrize("moment", ["after", "before"])
@pytest.mark.parametrize("number", [1, 2])
def test_call_is_made_once_when_its_intent_or_its_result_loses_the_answer(engine, break_commit, number, moment):
    desk = []

    @tool(safety="keyed", name="send")
    def send(call):
        desk.append(call.key)
        return len(desk)

    @workflow(name="one", version=1, state=Count)
    class One:
        @step
        def a(run: Any):
            return run.call(send, resource="x")

    break_commit(number, moment=moment)
    run = engine.run("one")
    assert (run.state, output(run)) == ("succeeded", 1)
    assert len(desk) == 1
    effect = IdempotencyRecord.objects.get()
    assert (effect.state, effect.attempts) == ("succeeded", 1)
    assert "effects_repeated" not in events_of(run)


@pytest.mark.parametrize("moment", ["after", "before"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_page_is_committed_once(engine, break_commit, number, moment):
    @workflow(name="pages", version=1, state=Count)
    class Pages:
        @step
        def a(run: Any):
            for page in run.pages(lambda at: Page(items=[1], next_cursor=(at or 0) + 1 if (at or 0) < 2 else None)):
                run.state.n += len(page)
            return run.state.n

    break_commit(number, moment=moment)
    run = engine.run("pages")
    assert (run.state, output(run)) == ("succeeded", 3)
    assert Checkpoint.objects.filter(run=run, kind="page").count() == 3


@pytest.mark.parametrize("moment", ["after", "before"])
@pytest.mark.parametrize("ending", ["wait", "retry", "fail"])
def test_run_that_leaves_its_worker_leaves_once(engine, break_commit, ending, moment):
    @workflow(name="leaves", version=1, state=Count)
    class Leaves:
        @step(retry=Retry(max_attempts=1 if ending == "fail" else 2, first_delay=600.0, max_delay=600.0))
        def a(run: Any):
            run.log("once")
            if ending == "wait":
                run.wait_for("go")
            raise ValueError

    break_commit(1, moment=moment)
    run = engine.run("leaves")
    state = {"wait": "waiting", "retry": "queued", "fail": "failed"}[ending]
    assert run.state == state
    assert RunEvent.objects.filter(run=run, to_state=state).exclude(event="start").count() == 1
    assert LogLine.objects.filter(run=run).count() == 1
    assert run.step_attempts == (0 if ending == "wait" else 1)


def test_run_that_somebody_took_while_the_database_was_away_is_let_go(engine, monkeypatch, second):
    """Lost answer, and a reaper that was quicker: the old holder hears that it lost, and writes nothing."""

    @workflow(name="one", version=1, state=Count)
    class One:
        @step
        def a(run: Any):
            return run.attempt

    real = commit._once
    seen: list[Any] = []

    def taken(database: Any, write: Any, **more: Any) -> Any:
        if not seen:
            seen.append(write)
            engine.lose_worker()
            terminate("durableops test worker")
            raise ConnectionLost("away")
        return real(database, write, **more)

    monkeypatch.setattr(commit, "_once", taken)
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", 2)
    assert Checkpoint.objects.filter(run=run).count() == 2
    assert "late_result_rejected" in events_of(run)


def test_write_that_is_still_under_way_when_its_sender_reconnects_lands_before_or_never(engine, second, monkeypatch):
    """The old backend waits for a lock while its client has gone: raising the fence decides, under that lock."""

    @workflow(name="one", version=1, state=Count)
    class One:
        @step
        def a(run: Any):
            return "once"

    real = commit._once
    seen: list[Any] = []

    def orphaned(database: Any, write: Any, **more: Any) -> Any:
        if seen:
            return real(database, write, **more)
        seen.append(write)
        # Another session sends the very same statement, holds it open, and commits only when asked for the fence.
        text, params = fenced.compile_write(write)
        with second.transaction():
            second.execute(text, params)
        raise ConnectionLost("away")

    monkeypatch.setattr(commit, "_once", orphaned)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert Checkpoint.objects.filter(run=run).count() == 2
    assert events_of(run).count("succeed") == 1


def test_claim_whose_answer_was_lost_is_handed_back_and_the_run_goes_on(engine, monkeypatch):
    from durableops.engine import in_hand

    @workflow(name="one", version=1, state=Count)
    class One:
        @step
        def a(run: Any):
            return 1

    real = in_hand.take_next  # type: ignore[attr-defined]  # imported there
    seen: list[Any] = []

    def lost(database: Any, **options: Any) -> Any:
        found = real(database, **options)
        if not seen:
            seen.append(found)
            terminate("durableops test worker")
            raise ConnectionLost("the answer to the claim was lost")
        return found

    monkeypatch.setattr(in_hand, "take_next", lost)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert events_of(run) == ["start", "claim", "hand_back", "claim", "succeed"]
    assert run.recoveries == 0
    assert not Run.objects.filter(state="running").exists()


def test_worker_survives_a_database_that_ends_its_session_between_two_runs(engine):
    @workflow(name="one", version=1, state=Count)
    class One:
        @step
        def a(run: Any):
            return 1

    engine.run("one")
    break_every_session_of(engine.worker.listener.database)
    assert engine.run("one").state == "succeeded"


def test_statement_that_loses_a_deadlock_is_tried_again(engine, database):
    seen = []

    def work(cursor: Any) -> str:
        seen.append(1)
        if len(seen) < 3:
            raise psycopg.errors.DeadlockDetected
        return "done"

    assert database.retrying(work) == "done"
    assert len(seen) == 3
    seen.clear()
    assert database.transacting(work) == "done"


def test_statement_that_always_deadlocks_is_given_up(database):
    def work(cursor: Any) -> None:
        raise psycopg.errors.DeadlockDetected

    with pytest.raises(psycopg.errors.DeadlockDetected):
        database.retrying(work)

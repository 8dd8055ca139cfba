"""`fire()` and its kin: all states times all events, each legal with its history row or refused without a trace."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from runs.models import Run, RunEvent
from runs.states import TERMINAL, TRANSITIONS, State
from runs.transitions import TransitionRefused, fire, fire_many, record_event
from tests.factories import make_run, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

# The claim raises the fence and names a worker: it has a statement of its own (runs/claiming.py).
FIRED = [event for event in TRANSITIONS if event != "claim"]
LEGAL = [(event, state) for event in FIRED for state in State if state in TRANSITIONS[event].sources]
ILLEGAL = [(event, state) for event in FIRED for state in State if state not in TRANSITIONS[event].sources]


def columns(run: Run) -> Any:
    return Run.objects.filter(pk=run.pk).values().get()


def test_table_is_covered_whole():
    assert len(LEGAL) + len(ILLEGAL) == len(FIRED) * len(State)


@pytest.mark.parametrize(("event", "state"), LEGAL, ids=[f"{e}-{s}" for e, s in LEGAL])
def test_legal_event_moves_the_run_and_leaves_one_history_row(event, state):
    run = make_run(state=state)
    target = TRANSITIONS[event].target

    fired = fire(event, run.pk, actor="somebody", reason="because", data={"a": 1})

    assert (fired.from_state, fired.to_state) == (state, target)
    run.refresh_from_db()
    assert run.state == target
    row = RunEvent.objects.get(run=run)
    assert (row.event, row.from_state, row.to_state) == (event, state, target)
    assert (row.actor, row.reason, row.data) == ("somebody", "because", {"a": 1})
    assert (run.finished_at is not None) == (target in TERMINAL)
    assert (run.due_at is not None) == (target is State.QUEUED)
    assert run.worker_id is None


def test_illegal_events_are_refused_and_change_nothing():
    # One test for all pairs: a hundred and fifty flushes would prove nothing more.
    runs = {state: make_run(state=state) for state in State}
    for event, state in ILLEGAL:
        run = runs[state]
        before = columns(run)
        with pytest.raises(TransitionRefused) as refused:
            fire(event, run.pk)
        assert (refused.value.state, refused.value.event) == (state, event)
        assert columns(run) == before, (event, state)
    assert not RunEvent.objects.exists()


def test_refusal_says_what_is_and_what_was_wanted():
    run = make_run(state="succeeded")
    with pytest.raises(TransitionRefused, match=f"run {run.pk} is succeeded; 'wake' needs waiting"):
        fire("wake", run.pk)


def test_missing_run_is_refused():
    run = make_run()
    other = type(run.pk)(int=run.pk.int + 1)
    with pytest.raises(TransitionRefused, match="is missing"):
        fire("cancel", other)


def test_event_under_another_fence_is_refused():
    run = make_run(state="running", fence=7)
    with pytest.raises(TransitionRefused) as refused:
        fire("succeed", run.pk, fence=6)
    assert refused.value.fence == 7
    fire("succeed", run.pk, fence=7)
    assert RunEvent.objects.get(run=run).fence == 7


def test_delay_says_when_a_queued_run_is_due():
    run = make_run(state="running")
    fire("retry_later", run.pk, delay=3600.0)
    run.refresh_from_db()
    assert run.due_at is not None
    assert timedelta(minutes=59) < run.due_at - now() < timedelta(minutes=61)


def test_further_columns_are_set_with_the_move():
    run = make_run(state="waiting")
    fire("wake", run.pk, sets={"wake_cause": "event", "wake_detail": "it came"})
    run.refresh_from_db()
    assert (run.wake_cause, run.wake_detail) == ("event", "it came")


@pytest.mark.parametrize("column", ["state", "fence", "head_seq", "tenant_id", "due_at; DROP TABLE runs_run"])
def test_columns_that_belong_to_the_move_itself_cannot_be_set(column):
    run = make_run(state="waiting")
    with pytest.raises(ValueError, match="is not set by a transition"):
        fire("wake", run.pk, sets={column: 1})


def test_only_a_new_lineage_says_where_the_run_is():
    run = make_run(state="failed")
    fire("branch", run.pk, sets={"lineage": 2, "step_id": "other"})
    run.refresh_from_db()
    assert (run.state, run.lineage, run.step_id) == ("queued", 2, "other")
    with pytest.raises(ValueError, match="is not set by a transition"):
        fire("branch", run.pk, sets={"fence": 1})


def test_move_and_its_history_row_are_rolled_back_together():
    run = make_run(state="waiting")
    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
        fire("wake", run.pk)
        raise ZeroDivisionError
    run.refresh_from_db()
    assert run.state == "waiting"
    assert not RunEvent.objects.exists()


def test_many_runs_move_in_one_statement_and_those_that_do_not_fit_stay():
    waiting = [make_run(state="waiting") for _ in range(3)]
    done = make_run(state="succeeded")
    with connection.cursor() as cursor:
        fired = fire_many("wake", cursor, pick="true ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED", reason="all")
    assert {f.run_id for f in fired} == {run.pk for run in waiting}
    assert set(RunEvent.objects.values_list("run_id", "actor", "reason")) == {(r.pk, "upkeep", "all") for r in waiting}
    done.refresh_from_db()
    assert done.state == "succeeded"


def test_recorded_event_moves_nothing_and_holds_what_it_was_given():
    run = make_run(state="running")
    worker = make_worker()
    with connection.cursor() as cursor:
        record_event(
            cursor, run.pk, "late_result_rejected", reason="too late", step_id="first", attempt=2, fence=1,
            worker_id=worker.pk, data={"x": [1]},
        )  # fmt: skip
    row = RunEvent.objects.get(run=run)
    assert (row.from_state, row.to_state, row.attempt, row.worker_id, row.data) == ("", "", 2, worker.pk, {"x": [1]})

"""Races for one effect of a whole tenant: a writer that rolls back, two that take over, one that comes back."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import State, step, tool, workflow
from runs import sharing
from runs.models import IdempotencyRecord, Run
from runs.transitions import fire
from tests.factories import make_effect, make_run, make_worker
from tests.fixtures.engine import Background, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Facts(State):
    n: int = 0


def declare(sent: list[str]) -> None:
    @tool(safety="keyed", scope="tenant", name="invoice")
    def invoice(call):
        sent.append(call.key)
        return {"id": "I-1"}

    @workflow(name="one", version=1, state=Facts)
    class One:
        @step
        def a(run: Any):
            return run.call(invoice, resource="order 7")["id"]


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT"])
def test_call_whose_slot_is_being_taken_waits_and_does_it_itself_if_that_is_rolled_back(engine, second, end):  # C035
    sent: list[str] = []
    declare(sent)
    first = engine.run("one")
    # Another run is about to commit the same intent: as the record of the first would be, were it not committed yet.
    effect: dict[str, Any] = dict(IdempotencyRecord.objects.values().get())
    IdempotencyRecord.objects.all().delete()
    second.execute("BEGIN")
    names = [name for name in effect if name != "id"]
    values = [bytes(effect[name]) if name == "slot" else effect[name] for name in names]
    values = ["{}" if name == "request_summary" else value for name, value in zip(names, values, strict=True)]
    second.execute(f"INSERT INTO runs_effect ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})", values)
    run = engine.start("one")
    worker = Background(engine.worker.drain)
    until_blocked()
    second.execute(end)
    worker.result()
    run.refresh_from_db()
    assert (first.state, run.state) == ("succeeded", "succeeded")
    assert len(sent) == (2 if end == "ROLLBACK" else 1)
    assert len(set(sent)) == 1


def left_behind(**over: Any) -> IdempotencyRecord:
    """An effect of a run that is not at it any more."""
    return make_effect(make_run(paused=True, paused_by="ann"), scope="tenant", **over)


def taking(cursor: Any, effect: IdempotencyRecord, run: Run) -> bool:
    cursor.execute("SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [run.pk])
    return sharing.take_over(
        cursor, effect_id=effect.pk, run_id=run.pk, step_id="first", from_run=effect.run_id, fence=effect.fence
    )


def test_of_two_that_take_over_at_once_one_does(database, second):
    effect = left_behind()
    first, other = (make_run(state="running", worker=make_worker()) for _ in range(2))
    with second.transaction():
        assert taking(second.cursor(), effect, first)
        racing = Background(lambda: database.transacting(lambda cursor: taking(cursor, effect, other)))
        until_blocked()
    assert racing.result() is False
    effect.refresh_from_db()
    assert effect.run_id == first.pk


def test_run_that_has_come_back_to_its_effect_keeps_it(database, second):
    effect = left_behind(fence=1)
    other = make_run(state="running", worker=make_worker())
    with second.transaction():
        # As its own repeat does: under the fence of its new claim.
        second.execute("UPDATE runs_effect SET fence = 2 WHERE id = %s", [effect.pk])
        racing = Background(lambda: database.transacting(lambda cursor: taking(cursor, effect, other)))
        until_blocked()
    assert racing.result() is False
    effect.refresh_from_db()
    assert effect.run_id != other.pk


@pytest.mark.parametrize(
    ("over", "free"),
    [
        ({}, True),
        ({"state": "in_doubt"}, True),
        ({"state": "succeeded"}, False),
        ({"state": "in_doubt", "safety": "legacy"}, False),
        ({"safety": "legacy"}, False),
    ],
)
def test_only_a_keyed_effect_that_nobody_is_at_is_taken_over(database, over, free):
    effect = left_behind(**over)
    run = make_run(state="running", worker=make_worker())
    assert database.transacting(lambda cursor: taking(cursor, effect, run)) is free


def test_effect_of_a_run_in_hand_or_on_its_way_there_is_left_to_it(database):
    held = make_effect(make_run(state="running", worker=make_worker()), scope="tenant")
    coming = make_effect(make_run(), scope="tenant")
    run = make_run(state="running", worker=make_worker())
    for effect in (held, coming):
        assert database.transacting(lambda cursor, effect=effect: taking(cursor, effect, run)) is False
    fire("cancel", coming.run_id)
    assert database.transacting(lambda cursor: taking(cursor, coming, run)) is True

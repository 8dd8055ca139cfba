"""Decisions: made once, found again by what they were made of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from durableops import Retry, State, step, tool, workflow
from runs.models import Checkpoint, Decision, Run, RunEvent
from tests.factories import events_of

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Nothing(State):
    pass


def one_step(function):
    workflow(name="one", version=1, state=Nothing)(type("One", (), {"a": step(id="a", retry=AT_ONCE)(function)}))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_decision_is_made_once_for_its_inputs_and_committed_before_anything_relies_on_it(engine):
    made = []

    def model(x: int) -> dict[str, int]:
        made.append(x)
        return {"y": x * 2}

    def a(run: Any):
        first = run.decide("route", {"x": 1}, model)
        assert Decision.objects.count() == 1
        if run.attempt == 1:
            raise ValueError("after the decision")
        return [first, run.decide("route", {"x": 2}, model, key="second")]

    one_step(a)
    assert output(engine.run("one")) == [{"y": 2}, {"y": 4}]
    assert made == [1, 2]


def test_other_inputs_are_another_decision(engine):
    made = []

    def model(x: int) -> int:
        made.append(x)
        return x

    def a(run: Any):
        found = run.decide("route", {"x": run.attempt}, model)
        if run.attempt < 2:
            raise ValueError
        return found

    one_step(a)
    run = engine.run("one")
    assert output(run) == 2
    assert made == [1, 2]
    told = RunEvent.objects.get(run=run, event="decision_changed").data
    hashes = list(Decision.objects.order_by("id").values_list("input_hash", flat=True))
    assert (told["name"], told["before"], told["inputs"]) == ("route", hashes[:1], hashes[1])


def test_changed_decision_that_changes_a_request_is_stopped_by_its_slot(engine):
    sent = []

    @tool(safety="keyed", name="send")
    def send(call, *, to: str):
        sent.append(to)
        return {"to": to}

    def a(run: Any):
        way = run.decide("route", {"x": run.attempt}, lambda x: f"way {x}")
        run.call(send, resource="r1", to=way)
        if run.attempt < 2:
            raise ValueError

    one_step(a)
    run = engine.run("one")
    assert (run.state, run.error_class, sent) == ("failed", "durableops.errors.EffectConflict", ["way 1"])
    assert {"decision_changed", "effect_conflict"} <= set(events_of(run))


@pytest.mark.parametrize("value", [pytest.param(object(), id="object"), float("nan"), "\ud800", "a\0"], ids=repr)
def test_decision_that_cannot_be_kept_fails_the_step(engine, value):
    one_step(lambda run: run.decide("route", {}, lambda: value))
    run = engine.run("one")
    assert run.state == "failed"
    assert not Decision.objects.exists()

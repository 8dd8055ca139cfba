"""Children: made together, waited for together, cancelled together, and never waited for when they are done."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import ChildrenFailed, Retry, State, step, workflow
from durableops.engine import commands, family
from durableops.engine.start import insert
from durableops.errors import TransitionRefused
from runs.models import Checkpoint, Run, RunEvent, Wait
from tests.factories import events_of, make_due

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Number(State):
    n: int = 0


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


@pytest.fixture
def declared(own_registry):
    @workflow(name="kid", version=1, state=Number)
    class Kid:
        @step(retry=ONCE)
        def a(run: Any):
            if run.state.n < 0:
                raise ValueError(f"{run.state.n} is negative")
            if run.state.n >= 100:
                run.wait_for("go", correlation=str(run.state.n))
            return run.state.n * 2


def parent(inputs, **options):
    @workflow(name="parent", version=1, state=Number, deadline=timedelta(hours=2))
    class Parent:
        @step(retry=AT_ONCE)
        def a(run: Any):
            found = run.children("kid", inputs, **options)
            return [[child.state, child.result] for child in found]


def test_parent_waits_for_all_and_gets_their_results_in_order(engine, declared):
    parent([{"n": n} for n in (3, 1, 2)])
    run = engine.run("parent")
    assert (run.state, output(run)) == ("succeeded", [["succeeded", 6], ["succeeded", 2], ["succeeded", 4]])
    assert Run.objects.filter(parent=run).count() == 3
    assert events_of(run) == ["start", "claim", "suspend", "wake", "claim", "succeed"]


class Killed(BaseException):
    """Nothing of ours catches this: as good as SIGKILL for what was not committed."""


def test_fan_out_that_is_interrupted_half_way_is_made_whole_and_ends_with_every_child(
    engine, declared, monkeypatch
):  # C016
    """The worker dies at the 80th of 288; the next one makes all; one of them fails for good."""
    parent([{"n": n % 50 if n != 79 else -1} for n in range(288)], on_failure="continue")
    real, made = insert, []

    def dies_at_the_eightieth(*args, **options):
        made.append(1)
        if len(made) == 80:
            raise Killed
        return real(*args, **options)

    run = engine.start("parent")
    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(family, "insert", dies_at_the_eightieth)
        engine.drain()
    assert not Run.objects.filter(parent=run).exists()
    assert not Wait.objects.exists()

    engine.lose_worker()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert Run.objects.filter(parent=run).count() == 288
    states = [state for state, _ in output(run)]
    assert (states.count("succeeded"), states.count("failed"), states[79]) == (287, 1, "failed")


@pytest.mark.parametrize("policy", ["raise", "continue"])
def test_failed_child_follows_the_declared_policy(engine, declared, policy):  # C016
    parent([{"n": n} for n in (1, -1, 2)], on_failure=policy)
    run = engine.run("parent")
    if policy == "raise":
        assert (run.state, run.step_attempts) == ("failed", 1)
        assert run.error_class == "durableops.errors.ChildrenFailed"
        assert "1 of 3" in run.error_message
        assert "-1 is negative" in run.error_message
    else:
        assert output(run) == [["succeeded", 2], ["failed", None], ["succeeded", 4]]


def test_failed_children_can_be_caught(engine, declared):
    @workflow(name="parent", version=1, state=Number)
    class Parent:
        @step
        def a(run: Any):
            try:
                run.children("kid", [{"n": -1}])
            except ChildrenFailed as failed:
                return len(failed.context["failed"])

    assert output(engine.run("parent")) == 1


def test_input_of_a_child_is_checked_before_any_is_made(engine, declared):
    parent([{"n": 1}, {"n": "many"}])
    run = engine.run("parent")
    assert run.state == "failed"
    assert "/n" in run.error_message
    assert not Run.objects.filter(parent=run).exists()


def test_no_children_are_no_wait(engine, declared):
    parent([])
    assert output(engine.run("parent")) == []


def test_lost_word_of_the_last_child_is_made_good_by_the_sweep(engine, declared, monkeypatch):  # C026
    from durableops.engine import endings

    parent([{"n": 1}])
    with monkeypatch.context() as patch:
        patch.setattr(endings, "nudge_parent", lambda *args: None)
        run = engine.run("parent")
    assert run.state == "waiting"
    assert Run.objects.get(parent=run).state == "succeeded"
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_deadline_of_a_child_is_never_later_than_its_parents(engine, declared):
    parent([{"n": 100}])
    run = engine.run("parent")
    assert Run.objects.get(parent=run).deadline_at == run.deadline_at


def test_cancelling_a_parent_ends_the_children_that_do_not_run(engine, declared):  # C014
    parent([{"n": 100}, {"n": 101}])
    run = engine.run("parent")
    done = commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
    assert (done.settled, done.state) == (True, "cancelled")
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}
    assert not Wait.objects.filter(state="open").exists()


@pytest.mark.parametrize("places", [1])
def test_parent_is_not_cancelled_before_its_running_children_are(engine, declared):  # C014
    entered = []
    told: list[commands.Done] = []
    states: list[Any] = []

    def parent_id():
        return Run.objects.get(workflow="parent").pk

    @workflow(name="slow", version=1, state=Number)
    class Slow:
        @step
        def a(run: Any):
            entered.append(run.id)
            if len(entered) == 1:
                # In the middle of the first child's step, whichever that is, a person cancels the parent.
                told.append(commands.cancel(parent_id(), tenant=engine.tenant, actor="ann", reason="stop"))
                states.append(dict(Run.objects.values_list("step_id", "state")))
                states.append(Run.objects.get(pk=parent_id()).state)
            run.progress(1)

    @workflow(name="parent", version=1, state=Number)
    class Parent:
        @step
        def a(run: Any):
            run.children("slow", [{"n": n} for n in range(3)])

    run = engine.run("parent")
    engine.rounds()
    run.refresh_from_db()
    assert told[0].settled is False
    assert states[1] == "waiting"
    assert len(entered) == 1
    assert run.state == "cancelled"
    assert set(Run.objects.filter(parent=run).values_list("state", flat=True)) == {"cancelled"}
    assert Run.objects.filter(parent=run, started_at=None).count() == 2


def test_cancel_reaches_grandchildren(engine, declared):  # C014
    @workflow(name="middle", version=1, state=Number)
    class Middle:
        @step
        def a(run: Any):
            run.children("kid", [{"n": 100 + run.state.n}])

    @workflow(name="top", version=1, state=Number)
    class Top:
        @step
        def a(run: Any):
            run.children("middle", [{"n": 0}, {"n": 1}])

    run = engine.run("top")
    assert Run.objects.filter(state="waiting").count() == 5
    commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
    for _ in range(3):
        engine.rounds()
    assert set(Run.objects.values_list("state", flat=True)) == {"cancelled"}


def test_children_end_when_their_parents_deadline_comes(engine, declared):
    parent([{"n": 100}])
    run = engine.run("parent")
    Run.objects.filter(pk=run.pk).update(deadline_at=run.created_at)
    engine.rounds()
    assert {r.workflow: r.state for r in Run.objects.all()} == {"parent": "timed_out", "kid": "cancelled"}


def test_finished_child_of_a_parent_that_went_on_cannot_be_reopened(engine, declared):
    parent([{"n": -1}], on_failure="continue")
    run = engine.run("parent")
    child = Run.objects.get(parent=run)
    with pytest.raises(TransitionRefused, match="parent"):
        commands.retry(child.pk, tenant=engine.tenant, actor="ann", reason="again")


def test_parent_that_is_entered_again_makes_no_second_family(engine, declared):
    @workflow(name="parent", version=1, state=Number)
    class Parent:
        @step(retry=AT_ONCE)
        def a(run: Any):
            run.children("kid", [{"n": 1}])
            if run.attempt == 1:
                raise ValueError("after the family")

    run = engine.run("parent")
    assert run.state == "succeeded"
    assert Run.objects.filter(parent=run).count() == 1


def test_child_parked_for_review_keeps_its_parent_waiting(engine, declared, own_registry):
    parent([{"n": 100}])
    run = engine.run("parent")
    child = Run.objects.get(parent=run)
    Run.objects.filter(pk=child.pk).update(state="in_review")
    make_due(run)
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "waiting"
    assert not RunEvent.objects.filter(run=run, event="wake").exists()

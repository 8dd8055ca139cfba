"""Which worker takes which run while old and new code live side by side: everyone what it has the very plan of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durableops import State, step, workflow
from durableops.conf import override_conf
from durableops.engine import offers
from runs.models import PlanSource, Run, WorkflowPlan
from runs.models import Worker as WorkerRow
from tests.factories import make_plan, make_run, make_tenant, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

GONE = "stopped by its operator"


class Counter(State):
    n: int = 0


class Wider(State):
    n: int = 0
    note: str = ""


def deploy(
    version: int, *, name: str = "moving", state: type[State] = Counter, body: Callable[[Any], Any] | None = None
):
    """Let this process know one more version."""
    steps = {"first": step(id="first")(body or (lambda run: version))}
    return workflow(name=name, version=version, state=state)(type("Moving", (), steps))


@pytest.fixture
def older(engine, own_registry) -> Run:
    """A queued run of version 1 in a process that has only version 2 by now."""
    deploy(1)
    run = engine.start("moving")
    own_registry.clear()
    deploy(2)
    return run


def state_of(run: Run) -> str:
    return Run.objects.values_list("state", flat=True).get(pk=run.pk)


def test_worker_tells_which_plans_it_can_run_and_with_which_code(engine, own_registry):
    deploy(1)
    deploy(2)
    engine.drain()
    row = WorkerRow.objects.get(pk=engine.worker.id)
    assert row.plans == list(WorkflowPlan.objects.order_by("pk").values_list("pk", flat=True))
    assert PlanSource.objects.count() == 2
    deploy(3)
    engine.drain()
    row.refresh_from_db()
    assert len(row.plans) == 3


def test_changed_code_under_an_unchanged_plan_is_a_second_source_of_one_plan(engine, own_registry):
    def other(run: Any) -> int:
        return 7

    deploy(1)
    engine.drain()
    own_registry.clear()
    deploy(1, body=other)
    engine.drain()
    assert WorkflowPlan.objects.get().sources.count() == 2


def test_run_of_an_old_version_waits_for_an_old_worker_while_one_lives(engine, older):
    old = make_worker(plans=[older.plan_id])
    engine.drain()
    assert state_of(older) == "queued"
    WorkerRow.objects.filter(pk=old.pk).update(ended_at=now() - timedelta(seconds=1), ended_why=GONE)
    engine.worker.listener.in_hand.offer.keep(engine.worker.database, at_once=True)
    engine.drain()
    assert state_of(older) == "queued", "its workers have their patience to come back"
    WorkerRow.objects.filter(pk=old.pk).update(ended_at=now() - timedelta(minutes=1))
    engine.worker.listener.in_hand.offer.keep(engine.worker.database, at_once=True)
    engine.drain()
    assert state_of(older) == "in_review"


def test_worker_that_came_back_after_the_last_look_keeps_its_runs(engine, older):
    offer = engine.worker.listener.in_hand.offer
    offer.keep(engine.worker.database)
    assert offer.taker(isolated=False, after_tenant=0).orphans == (older.plan_id,)
    make_worker(plans=[older.plan_id])
    engine.drain()
    assert state_of(older) == "queued"


def test_worker_that_does_not_say_what_it_has_may_have_it(engine, older):
    make_worker(plans=None)
    engine.drain()
    assert state_of(older) == "queued"


def test_pinned_run_is_taken_over_by_nobody(engine, older):
    Run.objects.filter(pk=older.pk).update(pinned=True)
    engine.drain()
    assert state_of(older) == "queued"


def test_old_worker_never_takes_a_newer_run(engine, own_registry):
    deploy(2)
    newer = engine.start("moving")
    own_registry.clear()
    deploy(1)
    engine.drain()
    assert state_of(newer) == "queued"


def test_of_two_plans_under_one_version_the_one_seen_last_takes_over(engine, own_registry):
    deploy(1)
    run = engine.start("moving")
    WorkflowPlan.objects.update(first_seen_at=now() - timedelta(hours=1))
    own_registry.clear()
    deploy(1, state=Wider)
    other = engine.start("moving")
    own_registry.clear()
    deploy(1)
    engine.drain()
    assert (state_of(run), state_of(other)) == ("succeeded", "queued")
    own_registry.clear()
    deploy(1, state=Wider)
    run = make_run(plan=run.plan, tenant=engine.tenant)
    engine.drain()
    assert (state_of(run), state_of(other)) == ("in_review", "succeeded")


def test_both_versions_in_one_process_run_their_own(engine, own_registry):
    deploy(1)
    old = engine.start("moving")
    deploy(2)
    new = engine.start("moving")
    engine.drain()
    assert [run.checkpoints.get(kind="finish").output for run in (old, new)] == ["1", "2"]


def test_run_of_an_unknown_workflow_is_left_alone(engine, own_registry):
    deploy(1)
    stranger = make_run(workflow="nowhere", tenant=engine.tenant)
    engine.drain()
    assert state_of(stranger) == "queued"


def test_cancelled_run_ends_whoever_has_its_version(engine, own_registry):
    deploy(1)
    stranger = make_run(workflow="nowhere", tenant=engine.tenant, cancel_requested=True)
    engine.drain()
    assert state_of(stranger) == "cancelled"


class TestCrowded:
    """Many runs for other workers stand in front of ours: the queue is read plan by plan."""

    @pytest.fixture(autouse=True)
    def few_are_many(self, monkeypatch):
        monkeypatch.setattr(offers, "MANY_STRANGERS", 2)

    def test_queue_is_read_plan_by_plan_and_everything_of_ours_is_taken(self, engine, own_registry):
        deploy(1)
        deploy(1, name="second")
        strange = make_plan("nowhere")
        for _ in range(3):
            make_run(plan=strange, tenant=engine.tenant, priority=50)
        ours = [engine.start(name) for name in ("moving", "second") for _ in range(3)]
        theirs = engine.start("second", tenant=make_tenant("other"))
        engine.drain()
        assert engine.worker.listener.in_hand.offer.is_crowded
        assert {state_of(run) for run in [*ours, theirs]} == {"succeeded"}
        assert set(Run.objects.filter(plan=strange).values_list("state", flat=True)) == {"queued"}

    def test_runs_that_are_to_be_taken_over_are(self, engine, older):
        for _ in range(3):
            make_run(workflow="nowhere", tenant=engine.tenant)
        pinned = make_run(plan=older.plan, tenant=engine.tenant, pinned=True)
        engine.drain()
        assert (state_of(older), state_of(pinned)) == ("in_review", "queued")

    def test_few_strangers_change_nothing(self, engine, own_registry):
        deploy(1)
        make_run(workflow="nowhere", tenant=engine.tenant)
        engine.run("moving")
        assert not engine.worker.listener.in_hand.offer.is_crowded


def test_patience_is_what_the_operator_says(engine, older):
    make_worker(plans=[older.plan_id], ended=GONE)
    with override_conf(version_patience_seconds=0.0):
        engine.drain()
    assert state_of(older) == "in_review"

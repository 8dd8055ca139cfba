"""`run.replan`: a run follows the plan it made, through crashes, going back, forks, and deploys."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from durableops import Migrated, PlanRefused, Retry, State, migration, step, workflow
from durableops.engine import branching, commands, guard, reshaping, reviewing
from durableops.upkeep.invariants.report import examine
from runs.models import Checkpoint, MadePlan, Run
from tests.factories import events_of

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Facts(State):
    ran: list[str] = []


class Agent:
    """A workflow whose first step plans: what a model said is what the test says."""

    def __init__(self, registry: Any) -> None:
        self.registry, self.says, self.refused = registry, ["write", "search"], ""
        self.fails: set[str] = set()

    def deploy(self, version: int = 1, *, search: str = "search", policy: Any = "automatic", told: Any = None) -> None:
        self.registry.clear()

        def work(run: Any) -> None:
            run.state.ran.append(run.step_id)
            if run.step_id == "write":
                run.approval("publish")
            if run.step_id in self.fails:
                raise ValueError("not today")

        def think(run: Any) -> None:
            asked = run.decide("plan", {"goal": "report"}, lambda goal: self.says)
            try:
                run.replan(asked, why="the model's plan")
            except PlanRefused as error:
                self.refused = error.detail
            if run.attempt == 1 and "think" in self.fails:
                raise ValueError("after planning")

        names = ("think", search, "compare", "write")
        steps: dict[str, Any] = {"think": step(id="think", retry=Retry(max_attempts=2, first_delay=0))(think)}
        steps |= {name: step(id=name, retry=Retry(max_attempts=1))(work) for name in names[1:]}
        made = workflow(name="agent", version=version, state=Facts, migrate=policy)(type("Agent", (), steps))
        if version > 1:
            migration(made, from_version=1)(told or (lambda old: Migrated(state=old, steps={"search": search})))


@pytest.fixture
def agent(engine, own_registry) -> Agent:
    found = Agent(own_registry)
    found.deploy()
    return found


def decide(engine, run: Run) -> Run:
    commands.approve(run.waits.filter(state="open").get().pk, tenant=engine.tenant, actor="rita")
    engine.drain()
    run.refresh_from_db()
    return run


def ran(run: Run) -> list[str]:
    rows = Checkpoint.objects.filter(run=run, kind__in=["step", "finish"]).order_by("seq")
    return list(rows.values_list("step_id", flat=True))


def plans(run: Run) -> list[tuple[int, list[str], str]]:
    return [(p.number, p.steps, p.step_id or p.actor) for p in MadePlan.objects.filter(run=run).order_by("number")]


def assert_sound(database: Any) -> None:
    found = examine(database, grace_seconds=60.0)
    assert [(each.check.name, each.sample) for each in found.broken] == []


def test_run_follows_the_plan_it_made_and_leaves_out_what_is_not_in_it(engine, agent):
    agent.fails = {"think"}
    run = engine.run("agent")
    run = engine.go_on(run) if run.state == "queued" else run
    assert (run.state, run.step_id) == ("waiting", "write")
    assert_sound(engine.worker.database)
    made = MadePlan.objects.get(run=run)
    assert (made.number, made.seq, made.step_id, made.steps) == (1, 1, "think", ["write", "search"])
    assert (made.why, made.actor, len(made.plan_hash)) == ("the model's plan", "", 64)
    run = decide(engine, run)
    assert (run.state, ran(run)) == ("succeeded", ["think", "write", "search"])
    assert events_of(run).count("replan") == 1, "the attempt that failed left no plan behind"


def test_refused_plan_can_be_asked_for_again_and_the_declared_order_holds_meanwhile(engine, agent):
    agent.says = ["write", "publish"]
    run = engine.run("agent")
    assert "no such step" in agent.refused
    assert run.own_plan is False
    assert (run.step_id, ran(run)) == ("write", ["think", "search", "compare"])


def test_empty_plan_ends_the_run_with_its_step(engine, agent):
    agent.says = []
    run = engine.run("agent")
    assert (run.state, ran(run), plans(run)) == ("succeeded", ["think"], [(1, [], "think")])


def test_worker_that_dies_in_a_planned_step_loses_no_plan(engine, agent):
    agent.says = ["search", "write"]
    run = engine.run("agent")
    engine.lose_worker()
    assert decide(engine, run).state == "succeeded"
    assert ran(run) == ["think", "search", "write"]


def test_going_back_behind_a_plan_leaves_it_and_a_fork_takes_it_along(engine, agent):
    agent.fails = {"search"}
    run = decide(engine, engine.run("agent"))
    assert (run.state, run.step_id) == ("failed", "search")
    agent.fails, agent.says = set(), ["compare"]
    with connection.cursor() as cursor:
        fork = guard.plan(cursor, "fork", run.pk, seq=2).hash
        back = guard.plan(cursor, "retry_from", run.pk, seq=0).hash
    by: dict[str, Any] = {"tenant": engine.tenant, "actor": "oda", "reason": "again"}
    made = branching.fork(run.pk, seq=2, plan_hash=fork, once="1", **by)
    forked = Run.objects.get(pk=str(made.run_id))
    branching.retry_from(run.pk, seq=0, plan_hash=back, **by)
    engine.drain()
    run.refresh_from_db()
    forked.refresh_from_db()
    assert (forked.state, ran(forked), plans(forked)) == ("succeeded", ["search"], [(1, ["write", "search"], "oda")])
    # The decision is on record, and says what it said: the plan is made anew from it, as its second version.
    assert (run.state, run.step_id) == ("waiting", "write")
    assert [p[:2] for p in plans(run)] == [(1, ["write", "search"]), (2, ["write", "search"])]
    assert_sound(engine.worker.database)


def test_migration_brings_the_plan_along_under_its_new_names_and_reverting_puts_it_back(engine, agent):
    run = engine.run("agent")
    agent.deploy(2, search="find", policy="reviewed")
    by: dict[str, Any] = {"tenant": engine.tenant, "actor": "rita", "reason": "v2"}
    with connection.cursor() as cursor:
        shown = guard.plan(cursor, "migrate", run.pk, version=2).hash
    reviewing.migrate(run.pk, version=2, plan_hash=shown, **by)
    assert plans(run)[-1] == (2, ["write", "find"], "rita")
    reviewing.revert(run.pk, **by)
    assert plans(run)[-1] == (3, ["write", "search"], "rita")
    reviewing.migrate(run.pk, version=2, **by)
    assert_sound(engine.worker.database)
    assert decide(engine, run).state == "succeeded"
    assert ran(run) == ["think", "write", "find"]


def test_migration_that_does_not_speak_for_a_planned_step_parks_the_run(engine, agent):
    run = engine.run("agent")
    agent.deploy(2, search="find", told=lambda old: old)
    run = decide(engine, run)
    assert (run.state, ran(run)) == ("in_review", ["think"])
    assert "'search' at place 2 of the plan" in run.reviews.get(closed_at=None).reason
    reshaping.edit(
        run.pk, state={"ran": []}, step_id="find", version=2, tenant=engine.tenant, actor="rita", reason="its new name"
    )  # fmt: skip
    assert_sound(engine.worker.database)
    engine.drain()
    assert ran(run) == ["think", "find", "compare"], "the declared order, until the next approval"


def test_person_moves_a_run_within_its_plan_or_out_of_it(engine, agent):
    run, other = engine.run("agent"), engine.run("agent")
    by: dict[str, Any] = {"tenant": engine.tenant, "actor": "rita", "reason": "skip"}
    reshaping.edit(run.pk, step_id="search", **by)
    reshaping.edit(other.pk, step_id="compare", **by)
    assert plans(run)[-1] == (2, ["search"], "rita")
    assert plans(other)[-1] == (2, ["compare", "write"], "rita"), "from there on the declared order holds"
    assert_sound(engine.worker.database)


def test_plan_whose_record_was_changed_parks_the_run(engine, agent):
    run = engine.run("agent")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_made_plan DISABLE TRIGGER USER")
        cursor.execute("UPDATE runs_made_plan SET steps = %s::jsonb", ['["write", "compare"]'])
        cursor.execute("ALTER TABLE runs_made_plan ENABLE TRIGGER USER")
    assert decide(engine, run).state == "in_review"
    assert run.reviews.get(closed_at=None).code == "plan_unreadable"

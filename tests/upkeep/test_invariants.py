"""The invariants: a healthy history passes every check, and each check fails once its record is broken by hand."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from durableops import Page, Retry, Run, State, step, tool, workflow
from durableops.engine import commands
from durableops.engine.claim import claim_next
from durableops.engine.database import Database
from durableops.engine.inbound import send_event
from durableops.errors import NotSent
from durableops.upkeep.invariants.check import Check
from durableops.upkeep.invariants.report import CHECKS, Report, examine
from runs import models
from runs.states import TRANSITIONS
from runs.states import State as RunState
from tests import factories
from tests.upkeep import (
    compensation_breaks,
    outbox_breaks,
    retention_breaks,
    story_breaks,
)
from tests.upkeep.breaking import broken_by, guards_off

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

NO_PAUSE = Retry(max_attempts=2, first_delay=0, jitter=0)


class Facts(State):
    n: int = 0
    fails: bool = False


def declare() -> None:
    """Workflows that between them do everything the checks look at."""
    answers = {"slow": iter([TimeoutError("no answer"), {"id": "s"}])}

    @tool(safety="keyed", timeout=5, retry=NO_PAUSE, key_window=timedelta(hours=1), resource_id="id")
    def send(call, *, text: str):
        answer = next(answers.get(call.resource, iter([{"id": call.resource}])))
        if isinstance(answer, Exception):
            raise answer
        return answer

    @tool(safety="keyed", timeout=5, retry=NO_PAUSE, key_window=timedelta(microseconds=1))
    def forgetful(call):
        raise TimeoutError("no answer")

    @workflow(name="child", version=1, state=Facts)
    class Child:
        @step(retry=NO_PAUSE)
        def work(run: Run):
            if run.state.fails:
                raise ValueError("it was asked to fail")
            return run.state.n

    @workflow(name="patient-child", version=1, state=Facts)
    class PatientChild:
        @step
        def work(run: Run):
            run.wait_for("never")

    @workflow(name="story", version=1, state=Facts, deadline=timedelta(days=1))
    class Story:
        @step
        def page(run: Run):
            for page in run.pages(lambda at: Page(items=[at, at + 1], next_cursor=at + 2) if at < 6 else None, start=0):
                run.call_many(send, [{"resource": f"row-{n}", "text": "hello"} for n in page])

        @step
        def slow(run: Run):
            run.call(send, resource="slow", text="hello")
            run.approval("go-ahead", timeout=timedelta(hours=1))

        @step
        def hear(run: Run):
            run.state.n = run.wait_for("news", timeout=timedelta(hours=1))["n"]

        @step
        def family(run: Run):
            run.children("child", [{"n": n} for n in range(3)])

        @step
        def nap(run: Run):
            run.sleep(60)

    @workflow(name="patient-parent", version=1, state=Facts)
    class PatientParent:
        @step
        def wait(run: Run):
            run.children("patient-child", [{}, {}])

    @workflow(name="patient", version=1, state=Facts)
    class Patient:
        @step
        def wait(run: Run):
            run.wait_for("never")

    @workflow(name="doubtful", version=1, state=Facts)
    class Doubtful:
        @step(retry=NO_PAUSE)
        def send_once(run: Run):
            run.call(forgetful, resource="one")


@pytest.fixture
def history(engine):
    """One of everything: finished, failed and reopened, cancelled, lost and recovered, waiting, in doubt, in review."""
    declare()
    who = {"tenant": engine.tenant, "actor": "olga", "reason": "to see"}
    story = engine.run("story")
    assert story.state == "waiting", story.error_message
    commands.approve(models.Wait.objects.get(run=story, kind="approval").pk, tenant=engine.tenant, actor="olga")
    engine.drain()
    send_event("news", tenant=engine.tenant, actor="desk", payload={"n": 7})
    engine.drain()
    engine.go_on(story)
    failed = engine.run("child", {"fails": True})
    engine.go_on(failed)
    engine.go_on(failed)
    commands.retry(failed.pk, **who)
    commands.pause(failed.pk, **who)
    commands.resume(failed.pk, **who)
    engine.drain()
    parent = engine.run("patient-parent")
    commands.cancel(parent.pk, **who)
    lost = engine.start("child")
    claim_next(engine.worker.database, taker=factories.make_taker(engine.worker.id))
    engine.lose_worker()
    engine.drain()
    engine.run("patient")
    engine.go_on(engine.run("doubtful"))
    outbox_breaks.post_and_relay(engine)
    factories.make_run(state="in_review", error_message="the plan has changed", workflow="gone")
    made = models.Run.objects.get(workflow="gone")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, actor, reason,"
            " data) VALUES (%(r)s, now(), 'start', '', 'queued', '', 0, 0, '', '', '{}'),"
            " (%(r)s, now(), 'claim', 'queued', 'running', '', 0, 0, '', '', '{}'),"
            " (%(r)s, now(), 'park', 'running', 'in_review', '', 0, 0, '', '', '{}')",
            {"r": made.pk},
        )
    states = dict(models.Run.objects.values_list("pk", "state"))
    assert (states[story.pk], states[failed.pk], states[parent.pk], states[lost.pk]) == (
        "succeeded", "failed", "cancelled", "succeeded",
    )  # fmt: skip
    assert models.Run.objects.filter(workflow="doubtful").get().state == "in_doubt"
    return engine


def look(**options: object) -> Report:
    database = Database(name="test invariants")
    try:
        return examine(database, **options)  # type: ignore[arg-type]
    finally:
        database.close()


def test_healthy_history_passes_every_check(history):
    found = look(
        grace_seconds=0.0, checks=[c for c in CHECKS if c.name != "queued_run_has_a_living_worker_that_knows_it"]
    )
    assert [(f.check.name, f.sample) for f in found.broken] == []
    assert look().passed
    assert len(found.findings) == len(CHECKS) - 1


def test_call_that_was_withdrawn_and_taken_up_again_is_no_repeat(engine):
    answers = iter([NotSent("no connection"), NotSent("no connection"), {"id": "x"}])

    @tool(safety="keyed", timeout=5, retry=NO_PAUSE, key_window=timedelta(hours=1))
    def reach(call):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @workflow(name="reaching", version=1, state=Facts)
    class Reaching:
        @step(retry=NO_PAUSE)
        def go(run: Run):
            run.call(reach, resource="far")

    run = engine.run("reaching")
    assert (run.state, run.effects.get().attempts) == ("succeeded", 1)
    assert look().passed


def test_wait_without_a_timeout_is_explained_and_not_broken(history):
    finding = {f.check.name: f for f in look().findings}["open_wait_has_a_waker"]
    assert finding.passed
    assert finding.explained == 1
    assert "has no timeout" in finding.explained_sample[0]["said"]


def test_paused_run_in_the_queue_is_explained_with_who_paused_it(engine):
    declare()
    run = engine.start("child")
    commands.pause(run.pk, tenant=engine.tenant, actor="olga", reason="to see")
    finding = {f.check.name: f for f in look(grace_seconds=0.0).findings}[
        "queued_run_has_a_living_worker_that_knows_it"
    ]
    assert finding.passed
    assert finding.explained_sample == ({"subject": str(run.pk), "said": "paused by olga"},)


BREAKS = [*story_breaks.BREAKS, *outbox_breaks.BREAKS, *retention_breaks.BREAKS]
"""Check, and what a hand with every guard switched off does to the record."""


def test_each_check_fails_once_its_record_is_broken(history, subtests):
    with guards_off():
        for name, statements in BREAKS:
            with subtests.test(name, statements=statements):
                assert name in broken_by(statements, CHECKS)
    assert look().passed


def test_every_check_is_broken_by_some_test():
    assert {name for name, _ in BREAKS + compensation_breaks.BREAKS} == {check.name for check in CHECKS}


def test_names_of_checks_are_unique_and_each_belongs_to_a_promise():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(1 <= check.promise <= 16 for check in CHECKS)


def test_sample_is_bounded_and_the_count_is_capped(engine):
    many = Check(
        name="many", promise=1, looks_at="numbers", broken="SELECT n, 'a number' FROM generate_series(1, 5000) n"
    )
    finding = look(checks=[many]).findings[0]
    assert (finding.violations, len(finding.sample), finding.as_json()["capped"]) == (1000, 20, True)


def test_check_that_takes_too_long_has_not_passed_and_the_others_are_made(engine):
    slow = Check(name="slow", promise=1, looks_at="nothing", broken="SELECT 1, pg_sleep(30)::text")
    quick = Check(name="quick", promise=1, looks_at="nothing", broken="SELECT 1, 'x' WHERE false")
    found = look(checks=[slow, quick], timeout_seconds=0.05)
    assert [f.passed for f in found.findings] == [False, True]
    assert "longer than its time limit" in found.findings[0].as_json()["complaint"]


def test_command_prints_one_object_and_passes_on_a_healthy_history(history, capsys):
    call_command("invariants", json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] is True
    assert {"name", "passed", "violations", "sample"} <= set(said["checks"][0])
    assert said["looked_at"]["open_runs"] == 3


def test_command_fails_and_names_what_is_broken(engine, capsys):
    run = factories.make_run(state="in_review")
    with pytest.raises(CommandError, match="checks failed"):
        call_command("invariants")
    said = capsys.readouterr().out
    assert "BROKEN  run in review says why" in said
    assert f"{run.pk}: nothing says what a person is to decide" in said


def test_table_of_moves_is_the_one_the_engine_uses():
    [check] = [check for check in CHECKS if check.name == "moves_are_those_the_table_allows"]
    for name, edge in TRANSITIONS.items():
        assert f"('{name}', '{RunState(min(edge.sources))}', '{edge.target}')" in check.broken

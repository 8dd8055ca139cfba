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


STORY = "(SELECT id FROM runs_run WHERE workflow = 'story')"
LAST_EVENT = f"(SELECT max(id) FROM runs_event WHERE to_state <> '' AND run_id = {STORY})"
PATIENT = "(SELECT id FROM runs_run WHERE workflow = 'patient')"
ROW_0 = f"run_id = {STORY} AND resource = 'row-0'"

BREAKS: list[tuple[str, str]] = [
    (
        "cap_has_as_many_slots_as_it_says",
        """
            INSERT INTO runs_quota_policy (resource, running_cap, version, updated_at, updated_by)
                VALUES ('scan', 2, 1, now(), 'a')""",
    ),
    (
        "blocks_are_what_a_tenants_budget_says_they_are",
        """
            INSERT INTO runs_tenant_spending (tenant_id, period, unit, currency, starts_at, ends_at, most, blocked)
                SELECT id, 'day', 'calls', '', now(), now() + interval '1 day', 10, 1 FROM runs_tenant LIMIT 1""",
    ),
    (
        "no_more_is_reserved_of_a_block_than_it_has",
        """
            INSERT INTO runs_tenant_spending (tenant_id, period, unit, currency, starts_at, ends_at, most)
                SELECT id, 'day', 'calls', '', now(), now() + interval '1 day', 10 FROM runs_tenant LIMIT 1;
            INSERT INTO runs_budget_block (spending_id, worker_id, amount)
                SELECT s.id, w.id, 1 FROM runs_tenant_spending s, runs_worker w LIMIT 1;
            INSERT INTO runs_reservation (block_id, run_id, fence, token, amount)
                SELECT k.id, r.id, 1, gen_random_uuid(), 2 FROM runs_budget_block k, runs_run r LIMIT 1""",
    ),
    (
        "no_more_run_than_the_cap_allows",
        f"""
            INSERT INTO runs_quota_policy (resource, running_cap, version, updated_at, updated_by)
                VALUES ('scan', 0, 1, now() - interval '1 hour', 'a');
            UPDATE runs_run SET state = 'running', state_since = now(), resource = 'scan' WHERE id = {PATIENT}""",
    ),
    (
        "queued_run_is_let_in_when_its_time_has_come",
        f"""
            UPDATE runs_run SET state = 'queued', deferred = true, due_at = now() - interval '1 hour'
                WHERE id = {PATIENT}""",
    ),
    (
        "queued_run_has_a_living_worker_that_knows_it",
        f"""
            UPDATE runs_worker SET plans = '[]';
            UPDATE runs_run SET state = 'queued', due_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_run SET state = 'running', worker_id = gen_random_uuid() WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_worker SET ended_at = NULL, renewed_at = now() - interval '1 hour';
            UPDATE runs_run SET state = 'running', worker_id = (SELECT min(id::text)::uuid
                FROM runs_worker) WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_worker SET ended_at = now() - interval '1 hour';
            UPDATE runs_run SET state = 'running', worker_id = (SELECT min(id::text)::uuid
                FROM runs_worker) WHERE id = {PATIENT}""",
    ),
    (
        "waiting_run_has_an_open_wait",
        f"""
            UPDATE runs_wait SET state = 'answered' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'time' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'poll', due_at = now() - interval '1 hour' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'children' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'turn', correlation = '' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "awaited_event_that_arrived_was_delivered",
        f"""
            UPDATE runs_wait SET name = 'news', since = now() - interval '2 days',
                opened_at = now() - interval '1 hour' WHERE run_id = {PATIENT};
            UPDATE runs_inbound_event SET received_at = now() - interval '1 hour'""",
    ),
    (
        "run_in_doubt_has_a_doubt_to_settle",
        """
            DELETE FROM runs_doubt""",
    ),
    (
        "run_in_review_says_why",
        """
            UPDATE runs_run SET error_message = '' WHERE state = 'in_review'""",
    ),
    (
        "gate_names_who_closed_it",
        f"""
            UPDATE runs_run SET paused = true WHERE id = {PATIENT}""",
    ),
    (
        "gate_names_who_closed_it",
        """
            INSERT INTO runs_pause_switch (scope, workflow, actor, reason, at) VALUES ('all', '', '', '', now())""",
    ),
    (
        "cancelled_run_ends",
        f"""
            UPDATE runs_run SET cancel_requested = true, state_since = now() - interval '1 hour'
                WHERE id = {PATIENT}""",
    ),
    (
        "overdue_run_is_ended",
        f"""
            UPDATE runs_run SET deadline_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "run_past_its_queue_wait_has_met_its_policy",
        f"""
            UPDATE runs_run SET state = 'queued', due_at = now() - interval '1 hour',
                queue_expires_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "expired_wait_is_closed",
        f"""
            UPDATE runs_wait SET expires_at = now() - interval '1 hour' WHERE run_id = {PATIENT}""",
    ),
    (
        "finished_run_waits_for_nothing",
        f"""
            UPDATE runs_run SET finished_at = now() - interval '1 hour' WHERE id = {STORY};
            UPDATE runs_wait SET state = 'open' WHERE run_id = {STORY}""",
    ),
    (
        "each_claim_has_a_fence_of_its_own",
        f"""
            UPDATE runs_event SET fence = 1 WHERE event = 'claim' AND run_id = {STORY}""",
    ),
    (
        "each_claim_has_a_fence_of_its_own",
        f"""
            UPDATE runs_run SET fence = 1 WHERE id = {STORY}""",
    ),
    (
        "fences_of_checkpoints_never_fall",
        f"""
            UPDATE runs_checkpoint SET fence = 99 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "checkpoint_was_written_by_the_worker_that_held_the_run",
        f"""
            UPDATE runs_checkpoint SET worker_id = gen_random_uuid() WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "committed_step_ran_once",
        f"""
            UPDATE runs_checkpoint SET step_id = 'page' WHERE step_id = 'slow' AND run_id = {STORY}""",
    ),
    (
        "checkpoint_numbers_are_dense",
        f"""
            DELETE FROM runs_checkpoint WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "checkpoint_numbers_are_dense",
        f"""
            UPDATE runs_checkpoint SET lineage = 2 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "head_is_the_newest_checkpoint",
        f"""
            UPDATE runs_run SET head_seq = head_seq + 1 WHERE id = {STORY}""",
    ),
    (
        "head_is_the_newest_checkpoint",
        f"""
            UPDATE runs_run SET step_id = 'other' WHERE id = {PATIENT}""",
    ),
    (
        "state_of_a_run_is_on_record",
        f"""
            UPDATE runs_checkpoint SET state = NULL, state_seq = 0 WHERE seq = 0 AND run_id = {PATIENT}""",
    ),
    (
        "state_of_a_run_is_on_record",
        f"""
            UPDATE runs_run SET state_seq = 0 WHERE id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = '2' WHERE cursor = '4' AND run_id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = to_jsonb(CASE cursor WHEN '2' THEN 'b' WHEN '4' THEN 'a' ELSE
                'c' END) WHERE cursor IS NOT NULL AND run_id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = CASE cursor WHEN '2' THEN '[2, 1]'::jsonb ELSE '[1, 2]' END
                WHERE cursor IN ('2', '4') AND run_id = {STORY}""",
    ),
    (
        "run_stands_in_the_plan_it_made",
        """
            INSERT INTO runs_made_plan (run_id, number, lineage, seq, step_id, steps, plan, plan_hash, why, actor,
                fence)
            SELECT id, 1, 1, 0, step_id, '["elsewhere"]', '{}', '', '', '', 0 FROM runs_run WHERE finished_at IS NULL
            ORDER BY id LIMIT 1; UPDATE runs_run SET own_plan = true
            WHERE id IN (SELECT run_id FROM runs_made_plan)""",
    ),
    (
        "plan_of_a_checkpoint_is_kept",
        f"""
            UPDATE runs_checkpoint SET plan_id = 0 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "no_result_before_its_intent",
        f"""
            UPDATE runs_effect SET intended_at = now() + interval '1 hour' WHERE {ROW_0}""",
    ),
    (
        "effect_has_the_result_its_state_says",
        f"""
            UPDATE runs_effect SET result = NULL WHERE {ROW_0}""",
    ),
    (
        "effect_has_the_result_its_state_says",
        f"""
            UPDATE runs_effect SET state = 'intended', completed_at = NULL WHERE {ROW_0}""",
    ),
    (
        "result_is_recorded_before_the_checkpoint_that_relies_on_it",
        f"""
            UPDATE runs_effect SET completed_at = now() + interval '1 hour' WHERE {ROW_0}""",
    ),
    (
        "slot_has_one_effect",
        f"""
            UPDATE runs_effect SET resource = 'row-0' WHERE resource = 'row-1' AND run_id = {STORY}""",
    ),
    (
        "slot_has_one_effect",
        f"""
            UPDATE runs_effect SET resource = 'row-0', scope = 'tenant' WHERE resource IN ('row-0',
                'row-1') AND run_id = {STORY}""",
    ),
    (
        "repeated_call_names_its_reason",
        f"""
            UPDATE runs_effect SET attempts = attempts + 1 WHERE {ROW_0}""",
    ),
    (
        "repeated_call_names_its_reason",
        """
            DELETE FROM runs_event WHERE event = 'effects_repeated'""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET state = 'intended', intended_at = now() - interval '1 hour', completed_at = NULL
                WHERE {ROW_0};
            UPDATE runs_run SET finished_at = now() - interval '1 minute' WHERE id = {STORY}""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET state = 'intended', intended_at = now() - interval '1 hour', completed_at = NULL
                WHERE {ROW_0};
            UPDATE runs_checkpoint SET at = now() - interval '1 minute' WHERE run_id = {STORY}""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET run_id = {PATIENT}, safety = 'legacy', state = 'intended',
                intended_at = now() - interval '1 hour' WHERE {ROW_0};
            UPDATE runs_run SET state_since = now() - interval '1 minute' WHERE id = {PATIENT}""",
    ),
    (
        "effect_in_doubt_has_one_open_doubt",
        """
            DELETE FROM runs_doubt;
            UPDATE runs_effect SET intended_at = now() - interval '1 hour' WHERE state = 'in_doubt'""",
    ),
    (
        "effect_in_doubt_has_one_open_doubt",
        """
            UPDATE runs_effect SET state = 'succeeded' WHERE state = 'in_doubt'""",
    ),
    (
        "one_call_at_a_time_goes_to_a_legacy_system",
        f"""
            UPDATE runs_effect SET holds_system = true WHERE {ROW_0}""",
    ),
    (
        "queued_call_has_a_waker",
        f"""
            UPDATE runs_effect SET state = 'queued', safety = 'legacy', completed_at = NULL WHERE {ROW_0};
            UPDATE runs_run SET finished_at = now() - interval '1 minute' WHERE id = {STORY}""",
    ),
    (
        "queued_call_has_a_waker",
        f"""
            INSERT INTO runs_system (name, first_used_at) VALUES ('ledger', now());
            UPDATE runs_effect SET state = 'queued', safety = 'legacy', system = 'ledger', queue_order = 1,
                completed_at = NULL, run_id = {PATIENT} WHERE {ROW_0};
            UPDATE runs_wait SET kind = 'turn', name = 'ledger', correlation = '' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 minute' WHERE id = {PATIENT}""",
    ),
    (
        "effect_was_written_under_a_fence_its_run_had",
        f"""
            UPDATE runs_effect SET fence = 99 WHERE {ROW_0}""",
    ),
    (
        "moves_are_those_the_table_allows",
        f"""
            UPDATE runs_event SET event = 'wake' WHERE id = {LAST_EVENT}""",
    ),
    (
        "each_move_begins_where_the_last_one_ended",
        f"""
            DELETE FROM runs_event WHERE event = 'suspend' AND run_id = {STORY}""",
    ),
    (
        "each_move_begins_where_the_last_one_ended",
        f"""
            UPDATE runs_run SET state = 'failed' WHERE id = {STORY}""",
    ),
    (
        "finished_run_stays_finished",
        f"""
            INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence,
                actor, reason, data) VALUES ({STORY}, now(), 'claim', 'succeeded', 'running', '', 0, 9, '',
                '', '{{}}')""",
    ),
    (
        "finished_run_stays_finished",
        f"""
            UPDATE runs_run SET worker_id = gen_random_uuid() WHERE id = {STORY}""",
    ),
    (
        "succeeded_run_has_one_finish",
        f"""
            UPDATE runs_checkpoint SET kind = 'step' WHERE kind = 'finish' AND run_id = {STORY}""",
    ),
    (
        "each_resume_has_a_receipt",
        f"""
            DELETE FROM runs_receipt WHERE number = 2 AND run_id = {STORY}""",
    ),
    (
        "nothing_is_claimed_after_its_deadline",
        f"""
            UPDATE runs_event SET at = now() + interval '3 days' WHERE event = 'claim' AND run_id = {STORY}""",
    ),
    (
        "children_of_a_wait_are_complete",
        """
            UPDATE runs_run SET child_index = 7 WHERE parent_wait_id IS NOT NULL AND child_index = 2""",
    ),
    (
        "children_of_a_wait_are_complete",
        f"""
            UPDATE runs_run SET state = 'waiting', finished_at = NULL WHERE child_index = 2 AND parent_id = {STORY}""",
    ),
    (
        "finished_parent_leaves_no_child_behind",
        f"""
            UPDATE runs_run SET state = 'waiting', finished_at = NULL WHERE child_index = 2 AND parent_id = {STORY}""",
    ),
    (
        "changes_by_people_are_audited",
        """
            DELETE FROM runs_audit_entry WHERE verb = 'retry'""",
    ),
    (
        "changes_by_people_are_audited",
        """
            DELETE FROM runs_audit_entry WHERE verb = 'cancel'""",
    ),
    (
        "tenants_do_not_mix",
        f"""
            INSERT INTO runs_tenant (slug, name, created_at) VALUES ('x', 'X', now());
            UPDATE runs_effect SET tenant_id = (SELECT id FROM runs_tenant WHERE slug = 'x') WHERE {ROW_0}""",
    ),
    (
        "tenants_do_not_mix",
        """
            INSERT INTO runs_tenant (slug, name, created_at) VALUES ('x', 'X', now());
            UPDATE runs_inbound_event SET tenant_id = (SELECT id FROM runs_tenant WHERE slug = 'x')""",
    ),
]
BREAKS += outbox_breaks.BREAKS
BREAKS += retention_breaks.BREAKS
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

"""What running processes do when nobody is killed, or only while something waits: gates, waits, families."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from durableops.engine import commands, compensating
from durableops.engine.compensation import undoing
from durableops.engine.inbound import send_event
from durableops.engine.start import start
from durableops.errors import InputRefused, TransitionRefused
from runs.models import AuditEntry, Compensation, InboundEvent, LogLine, PauseSwitch, Run, Wait, Worker
from tests.acceptance.pool import Desk, Pool, Told, make_desk, server_now
from tests.acceptance.processes import environment, patiently

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


# C049: the same run goes on; what was done before the question is not done again, also by another process.
@pytest.mark.parametrize("restarted", [False, True], ids=["same worker", "worker replaced meanwhile"])
def test_approval_does_not_run_earlier_steps_again(pool: Pool, desk: Desk, restarted: bool):
    run = desk.start("acc-approval")
    run.until("waiting")
    wait = Wait.objects.get(run_id=run.pk)
    if restarted:
        before = pool.worker.ready()
        pool.worker.kill_child()
        patiently(lambda: Worker.objects.get(pk=before.pk).ended_at, hoping_for="the worker's end on record")
    commands.approve(wait.pk, tenant=desk.tenant, actor="olga", reason="looks right")

    run.until("succeeded")
    assert [(m["step"], m["entry"]) for m in run.marks()] == [("fetch", 1), ("fetch_more", 1), ("fetch_last", 1)]
    assert len(run.world()) == 1
    assert run.causes() == ["approval"]
    assert Run.objects.filter(pk=run.pk, state="succeeded", parent=None).count() == 1
    assert not Run.objects.filter(workflow="acc-approval", created_at__gt=run.row.finished_at).exists()


# C023: what each attempt said carries its number; the last attempt's part is what a reader takes for the result.
def test_log_lines_and_progress_carry_the_attempt_that_said_them(pool: Pool, desk: Desk):
    run = desk.start("acc-noisy")
    done = run.until("succeeded")
    lines = list(LogLine.objects.filter(run_id=run.pk).order_by("id").values_list("attempt", "message"))
    assert lines == [(attempt, f"line {n}") for attempt in (1, 2, 3, 4) for n in (1, 2, 3)]
    assert (done.progress_done, done.progress_total) == (3, 3)


# C107: going on needs no input; what stands on record is where it goes on.
def test_resume_goes_on_at_the_next_step_and_asks_for_no_input(pool: Pool, desk: Desk):
    run = desk.start("acc-three", options={"start_key": "order-7"})
    run.until_marked("second", "began")
    commands.pause(run.pk, tenant=desk.tenant, actor="olga", reason="lunch")
    run.open_gate()
    patiently(lambda: not run.row.worker_id, hoping_for="the paused run to be handed back")
    again = start("acc-three", {"folder": str(run.folder)}, tenant=desk.tenant, actor="tests", start_key="order-7")
    assert (again.run_id, again.created) == (run.pk, False)
    commands.resume(run.pk, tenant=desk.tenant, actor="olga", reason="back")

    run.until("succeeded")
    assert len(run.marks("first")) == 1
    assert run.row.fence > 1


def test_switch_that_pauses_everything_hands_back_and_lets_all_go_on_once_lifted(pool: Pool, desk: Desk):
    run = desk.start("acc-pages")
    run.until_marked("work", "third page")
    switch = commands.set_switch("all", actor="olga", reason="an outage downstream")
    run.open_gate()
    patiently(lambda: run.row.state == "queued", hoping_for="the run to be handed back")
    other = desk.start("acc-quick")
    seen = server_now()
    # Two polls and a few rounds of upkeep later nothing was claimed: the counter of the idle worker says that it lives.
    before = pool.worker.ready().counter
    patiently(lambda: pool.worker.ready().counter > before + 10, hoping_for="the worker to live on")
    assert (other.row.state, run.row.state, server_now() > seen) == ("queued", "queued", True)

    commands.lift_switch(switch, actor="olga", reason="it is over")
    run.until("succeeded")
    other.until("succeeded")
    assert not PauseSwitch.objects.exists()
    assert sorted(line["resource"] for line in run.world()) == sorted(f"row-{n}" for n in range(8))
    assert run.causes() == ["pause"]


# C085: what waits behind one tenant's gate stands in nobody else's way.
def test_paused_tenant_with_a_backlog_stops_nobody_else(pool: Pool, desk: Desk, tmp_path: Path):
    switch = commands.set_switch("tenant", tenant=desk.tenant, actor="olga", reason="their downstream is away")
    backlog = [desk.start("acc-quick", shared=True) for _ in range(50)]
    others = make_desk("somebody-else", tmp_path)
    free = [others.start("acc-quick", shared=True) for _ in range(10)]
    for run in free:
        run.until("succeeded")
    assert {run.row.state for run in backlog} == {"queued"}

    commands.lift_switch(switch, actor="olga", reason="it is back")
    for run in backlog:
        run.until("succeeded")


# C013: cancel and the end of a run meet on the run's row; the answer to the cancel is what became of it.
def test_answer_to_a_cancel_never_disagrees_with_the_end_of_the_run(pool: Pool, desk: Desk):
    ends = {"accepted": "cancelled", "refused": "succeeded"}
    answers: dict[str, int] = {}
    for n in range(40):
        run = desk.start("acc-quick", shared=True)
        if n % 2:
            patiently(lambda: run.row.state != "queued", hoping_for="a run under way")  # noqa: B023
        answer = ask_to_cancel(run, desk)
        assert run.until(ends[answer]).state == ends[answer]
        answers[answer] = answers.get(answer, 0) + 1
    assert sum(answers.values()) == 40
    audited = AuditEntry.objects.filter(tenant=desk.tenant, verb="cancel", after__cancel_requested=True)
    assert audited.count() == answers.get("accepted", 0)


def ask_to_cancel(run: Told, desk: Desk) -> str:
    try:
        commands.cancel(run.pk, tenant=desk.tenant, actor="olga", reason="a change of mind")
    except TransitionRefused as refused:
        return "refused" if "succeeded" in refused.detail else refused.detail
    return "accepted"


# C020: an event may come before its wait is there; the documented look-back finds it, and an early one is kept.
def test_event_sent_right_after_the_start_is_never_missed(pool: Pool, desk: Desk):
    early = send_event("go", tenant=desk.tenant, actor="tests", correlation="nobody yet")
    runs = [desk.start("acc-suspends") for _ in range(20)]
    for run in runs:
        send_event("go", tenant=desk.tenant, actor="tests", correlation=str(run.pk), payload=1)
    for run in runs:
        run.until("succeeded")
        assert "wait_timeout" not in run.events()
    kept = InboundEvent.objects.get(pk=early.event_id)
    assert kept.answered_waits == 0


# C016: the fan-out dies half way, and is made again from nothing; one child fails for good.
def test_fan_out_killed_half_way_makes_each_child_once_and_the_join_ends(pool: Pool, desk: Desk):
    with psycopg.connect(owner_url(), autocommit=True) as owner:
        owner.execute(SLOW_CHILD)
        try:
            run = desk.start("acc-parent", children=288, bad=7)
            patiently(is_inserting_slowly, hoping_for="a fan-out that has come to its 79th child")
            pool.worker.kill_child()
        finally:
            owner.execute("DROP TRIGGER slow_child ON runs_run; DROP FUNCTION slow_child()")
    done = run.until("succeeded", timeout=60)

    children = Run.objects.filter(parent_id=run.pk)
    assert list(children.order_by("child_index").values_list("child_index", flat=True)) == list(range(288))
    assert (children.filter(state="succeeded").count(), children.filter(state="failed").count()) == (287, 1)
    assert run.causes() == ["worker_lost", "children"]
    assert done.error_message == ""


SLOW_CHILD = """
CREATE FUNCTION slow_child() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN NEW; END $$;
CREATE TRIGGER slow_child BEFORE INSERT ON runs_run FOR EACH ROW WHEN (NEW.child_index = 79)
    EXECUTE FUNCTION slow_child()"""


def owner_url() -> str:
    found = environment()
    return found["DATABASE_OWNER_URL"] or found["DATABASE_URL"]


def is_inserting_slowly() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
        return bool(cursor.fetchone()[0])


# C026: the last child's worker dies between its commit and the parent's nudge; the sweep looks at the rows.
def test_parent_whose_nudge_was_lost_is_woken_by_the_sweep(pool: Pool, desk: Desk):
    visitor = pool.visitor(failpoints="before_parent_nudged=hold")
    pool.worker.park()
    run = desk.start("acc-parent", children=1)
    patiently(lambda: Run.objects.filter(parent_id=run.pk, state="succeeded").exists(), hoping_for="a finished child")
    visitor.kill_both()
    pool.worker.unpark()

    run.until("succeeded")
    assert run.causes() == ["children"]


# C160: a session that sits on one run's row delays that run and nobody else.
def test_idle_transaction_on_one_run_does_not_stop_the_others(pool: Pool, desk: Desk):
    pool.worker.park()
    held, others = desk.start("acc-quick"), [desk.start("acc-quick") for _ in range(20)]
    with psycopg.connect(owner_url()) as idle:
        idle.execute("UPDATE runs_run SET priority = priority WHERE id = %s", [held.pk])
        pool.worker.unpark()
        for run in others:
            run.until("succeeded")
        assert held.row.state == "queued"
        idle.rollback()
    held.until("succeeded")


# C073: what became due while nobody looked is taken as soon as somebody does, the oldest first.
def test_runs_that_became_due_while_everybody_slept_all_start(pool: Pool, desk: Desk):
    pool.worker.park()
    now = server_now()
    due = [now + timedelta(seconds=offset) for offset in (-3600, -1, 0, 0.3, 0.6)]
    runs: list[Told] = [desk.start("acc-quick", options={"start_at": at}) for at in due]
    pool.worker.unpark()
    for run in runs:
        run.until("succeeded")
    assert all(run.row.started_at >= at for run, at in zip(runs, due, strict=True))


def test_child_that_stands_still_and_goes_on_within_its_lease_loses_nothing(pool: Pool, desk: Desk):
    run = desk.start("acc-three")
    run.until_marked("second", "began")
    child = pool.worker.child
    os.kill(child, signal.SIGSTOP)
    before = pool.worker.ready().counter
    patiently(lambda: pool.worker.ready().counter > before + 20, hoping_for="more than a lease of heartbeats")
    os.kill(child, signal.SIGCONT)
    run.open_gate()
    run.until("succeeded")
    assert run.receipts() == []


# C089, C091, C094, C095: what cannot be kept fails the step that produced it, names the place, and undoes no effect.
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nul", "NUL"), ("surrogate", "surrogate"), ("nan", "nan"), ("infinity", "inf"), ("huge", "bytes"),
        ("deep", "deep"), ("object", "object"), ("large number", "2^53"),
    ],
)  # fmt: skip
def test_output_that_cannot_be_kept_fails_its_step_and_its_effect_stays_done(
    pool: Pool, desk: Desk, what: str, said: str
):
    run = desk.start("acc-bad-output", what=what)
    failed = run.until("failed")
    assert failed.error_class.endswith("PayloadRefused")
    assert said in failed.error_message
    assert [(effect.state, effect.attempts) for effect in run.effects()] == [("succeeded", 1)]
    assert len(run.world()) == 1


# C089
def test_error_text_that_no_database_takes_is_kept_with_marks(pool: Pool, desk: Desk):
    run = desk.start("acc-bad-output", what="error")
    failed = run.until("failed")
    assert "a NUL" in failed.error_message
    assert "\0" not in failed.error_message
    assert [effect.state for effect in run.effects()] == ["succeeded"]


# C095: a run stays in everybody's hand whatever its size.
def test_input_over_the_limit_is_refused_and_leaves_nothing(pool: Pool, desk: Desk):
    before = Run.objects.count()
    with pytest.raises(InputRefused, match="bytes"):
        desk.start("acc-quick", what="x" * 5_000_000)
    assert Run.objects.count() == before
    largest = desk.start("acc-suspends", what="x" * 1_000_000)
    largest.until("waiting")
    assert commands.cancel(largest.pk, tenant=desk.tenant, actor="olga", reason="too large").state == "cancelled"


# C010: one run is of a workflow nobody knows, another's state cannot be read; the others of the same moment run.
def test_unreadable_run_is_parked_with_its_reason_one_of_an_unknown_workflow_is_left_and_the_others_run(
    pool: Pool, desk: Desk
):
    pool.worker.park()
    runs = [desk.start("acc-quick") for _ in range(10)]
    third, seventh = runs[2], runs[6]
    with psycopg.connect(owner_url()) as owner:
        owner.execute("ALTER TABLE runs_checkpoint DISABLE TRIGGER USER")
        owner.execute("UPDATE runs_checkpoint SET state = '{\"folder\": [}' WHERE run_id = %s", [seventh.pk])
        owner.execute("ALTER TABLE runs_checkpoint ENABLE TRIGGER USER")
        owner.execute(
            "WITH gone AS (INSERT INTO runs_workflow_plan (workflow, version, schema_version, schema_hash, plan_hash,"
            " plan, source_fingerprint, first_seen_at) SELECT 'gone', version, schema_version, schema_hash, plan_hash,"
            " plan, source_fingerprint, now() FROM runs_workflow_plan WHERE workflow = 'acc-quick' RETURNING id)"
            " UPDATE runs_run SET workflow = 'gone', plan_id = gone.id FROM gone WHERE runs_run.id = %s",
            [third.pk],
        )
    pool.worker.unpark()
    for run in runs:
        if run is not third:
            run.until("in_review" if run is seventh else "succeeded")
    # Nobody here can run it: it is not even claimed, and is told as waiting for a worker that can.
    assert (third.row.state, third.row.fence) == ("queued", 0)
    assert seventh.row.error_message
    assert (third.row.worker_id, seventh.row.worker_id) == (None, None)


# C043: the second undo fails on every attempt, its worker is killed, a person lets it try again twice.
def test_undo_that_fails_half_way_holds_the_older_one_through_a_kill_until_it_succeeds(pool: Pool, desk: Desk):
    undoing.install()
    run = desk.start("acc-undo")
    run.until("succeeded")
    run.open_gate("closed")
    compensating.compensate(run.pk, tenant=desk.tenant, actor="olga", reason="wrong customer")
    first, second = Compensation.objects.filter(run_id=run.pk).order_by("effect_id")

    def asked() -> int:
        patiently(lambda: state_of(second) == "failed", hoping_for="the newest undo to fail")
        assert (state_of(first), run.marks("first", "asked to undo")) == ("approved", [])
        return len(run.marks("second", "asked to undo"))

    attempts = asked()
    pool.worker.kill_child()
    pool.worker.ready()
    assert asked() == attempts == 4
    compensating.try_again(second.pk, tenant=desk.tenant, actor="olga", reason="they say it is open")
    assert asked() > attempts
    (run.folder / "closed").unlink()
    compensating.try_again(second.pk, tenant=desk.tenant, actor="olga", reason="it is open")
    patiently(lambda: state_of(first) == "done", hoping_for="both to be undone")
    linked = Run.objects.filter(undoes=first.pk, state="succeeded")
    patiently(linked.exists, hoping_for="the end of the linked run")
    assert [line["resource"] for line in run.lines("undone")] == ["second", "first"]
    assert state_of(second) == "done"


def state_of(one: Compensation) -> str:
    return Compensation.objects.get(pk=one.pk).state

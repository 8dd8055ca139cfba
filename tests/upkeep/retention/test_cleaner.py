"""The cleaner: what may go goes, with its record first, whole or not at all; and nothing else does."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.db import connection

from durableops import State, failpoints, step, workflow
from durableops.artifacts import storage
from durableops.engine import commands
from durableops.engine.endings import reject_late_result
from durableops.engine.retention import holds, rules
from durableops.errors import FenceLost, TransitionRefused
from durableops.upkeep.retention import relooks
from durableops.upkeep.retention.cleaner import Cleaner
from runs.models import (
    AuditEntry,
    Checkpoint,
    Cleanup,
    IdempotencyRecord,
    InboundEvent,
    LooseFile,
    RetentionLane,
    Run,
    RunEvent,
    RunSummary,
    WorkflowPlan,
)
from runs.retention.classes import CLASSES, DEFAULT_DAYS
from tests.factories import make_artifact, make_effect, make_plan, make_run, make_tenant, make_wait, now
from tests.fixtures.engine import Background, holding
from tests.upkeep.retention.conftest import LONG_AGO, classes_left, full_run, left_of

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def on_disk() -> int:
    root = Path(default_storage.path("artifacts"))
    return sum(path.is_file() for path in root.rglob("*")) if root.exists() else 0


@pytest.mark.parametrize("days", sorted({days for days in DEFAULT_DAYS.values() if days is not None}))
def test_each_class_goes_on_its_day(clean, days):
    run = full_run(ago=timedelta(days=days) + HOUR)
    clean()
    gone = {name for name in CLASSES if (DEFAULT_DAYS[name] or 0) <= days}
    assert classes_left(run) == set(CLASSES) - gone
    other = full_run(ago=timedelta(days=days) - HOUR) if days else full_run(ago=-HOUR)
    clean()
    assert classes_left(other) == {name for name in CLASSES if (DEFAULT_DAYS[name] or 0) >= days}


def test_key_hash_outcome_and_downstream_id_stay_as_long_as_the_row(clean):
    run = full_run(ago=timedelta(days=399))
    IdempotencyRecord.objects.filter(run=run).update(downstream_id="T-1")
    before = IdempotencyRecord.objects.get(run=run)
    clean()
    after = IdempotencyRecord.objects.get(run=run)
    assert (after.key, after.request_hash, bytes(after.slot)) == (before.key, before.request_hash, bytes(before.slot))
    assert (after.state, after.downstream_id, after.tool, after.resource) == (
        "succeeded", "T-1", before.tool, before.resource,
    )  # fmt: skip
    assert (after.result, after.request_summary) == (None, {})


def test_run_whose_last_time_has_come_leaves_nothing_but_the_record_of_it(clean):
    run = full_run()
    done = clean()
    assert not Run.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.columns WHERE column_name = 'run_id'"
            " AND table_schema = 'public' AND table_name NOT IN ('runs_legal_hold', 'runs_relook', 'runs_bulk_item')"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT count(*) FROM {table} WHERE run_id = %s", [run.pk])
            assert cursor.fetchone()[0] == 0, table
    assert (on_disk(), done.files, LooseFile.objects.count()) == (0, 5, 0)
    assert set(Cleanup.objects.values_list("data_class", flat=True)) == set(CLASSES)
    assert sum(Cleanup.objects.values_list("rows", flat=True)) == done.rows
    assert {tuple(s) for s in Cleanup.objects.values_list("sample", flat=True)} == {(str(run.pk),)}


def test_record_of_a_cleanup_says_policy_class_cutoff_and_counts(clean):
    run = full_run(ago=timedelta(days=8))
    rule = rules.set_rule(
        "raw_prompt", keeps="seconds", seconds=3600, tenant=run.tenant, workflow="made", actor="ada", reason="privacy"
    )
    clean()
    one = Cleanup.objects.get(kind="runs_prompt")
    assert (one.data_class, one.tenant, one.workflow, one.rule, one.seconds, one.reason) == (
        "raw_prompt", run.tenant, "made", rule.pk, 3600, "policy",
    )  # fmt: skip
    assert (one.runs, one.rows, one.bytes > 100, one.cleaner) == (1, 1, True, "tests")
    assert abs(one.cutoff - (now() - HOUR)) < timedelta(minutes=1)


def test_summary_is_there_before_anything_goes_and_stays_to_the_end(clean):
    run = full_run(ago=timedelta(minutes=1))
    Checkpoint.objects.filter(run=run)
    clean()
    summary = RunSummary.objects.get(run=run)
    assert (summary.version, summary.checkpoints, summary.effects) == (1, 4, {"succeeded": 1})
    assert [one["name"] for one in summary.deliverables] == [run.artifacts.get(data_class="deliverable").name]
    assert set(summary.cleaned) == {"temp_file"}
    assert summary.output_bytes == len('{"rows":3}')
    clean(as_of=now())
    assert RunSummary.objects.get(run=run).written_at == summary.written_at


def test_run_that_was_reopened_gets_another_summary(clean):
    run = full_run("failed", ago=HOUR)
    clean()
    first = RunSummary.objects.get(run=run)
    assert first.closed_at is None
    commands.retry(run.pk, tenant=run.tenant, actor="ann", reason="again")
    Run.objects.filter(pk=run.pk).update(state="succeeded", due_at=None, finished_at=now())
    clean()
    assert RunSummary.objects.get(run=run).finished_at > first.finished_at


# C113
@pytest.mark.parametrize("state", ["queued", "running", "waiting", "in_doubt", "in_review"])
def test_live_run_is_left_alone_however_old(clean, state):
    live = make_run(state=state, created_at=now() - LONG_AGO, head_seq=1)
    make_artifact(live, data_class="temp_file")
    done = full_run()
    clean()
    assert not Run.objects.filter(pk=done.pk).exists()
    live.refresh_from_db()
    assert (live.state, Checkpoint.objects.filter(run=live).count(), live.artifacts.count()) == (state, 2, 1)


# C113: of one of each kind only the finished one goes, and the preview lists exactly it.
def test_of_old_runs_of_every_kind_only_the_finished_one_goes(clean, cleaning):
    from durableops.upkeep.retention import preview
    from tests.factories import make_compensation, make_message

    old: dict[str, Any] = {"created_at": now() - LONG_AGO}
    make_run(state="running", **old)
    make_wait(make_run(state="waiting", **old), kind="approval")
    make_wait(make_run(state="waiting", **old), kind="time", due_at=now() + 10 * DAY)
    make_run(state="in_review", **old)
    undoing = full_run()
    make_compensation(undoing.effects.get())
    posting = full_run()
    make_message(posting)
    finished = full_run()
    seen = preview.look(cleaning, cleaning.fetch("SELECT now()")[0][0])
    assert {run for one in seen.goes if one.data_class == "effect_key" for run in one.sample} == {str(finished.pk)}
    clean()
    assert Run.objects.count() == 6
    assert not Run.objects.filter(pk=finished.pk).exists()


# C115
def test_version_and_parents_that_are_still_named_stay_and_the_rest_goes(clean):
    plan = make_plan("made")
    WorkflowPlan.objects.filter(pk=plan.pk).update(first_seen_at=now() - LONG_AGO)
    young = make_run(state="succeeded", plan=plan, finished_at=now() - DAY, created_at=now() - DAY)
    parent, child = full_run(), full_run()
    wait = make_wait(parent, kind="children", name="kids", state="answered")
    Run.objects.filter(pk=child.pk).update(parent=parent, parent_wait=wait, child_index=0)
    first = clean()
    assert set(Run.objects.values_list("pk", flat=True)) == {young.pk, parent.pk}
    assert RunSummary.objects.get(run=parent).kept == {"effect_key": ["child_rows"]}
    assert WorkflowPlan.objects.filter(pk=plan.pk).exists()
    assert first.skipped == []
    Run.objects.filter(pk=parent.pk).update(retain_at=now())
    clean()
    assert set(Run.objects.values_list("pk", flat=True)) == {young.pk}


# C116
def test_run_that_somebody_holds_is_skipped_and_told_and_the_others_go(clean, second):
    held, free = full_run(), full_run()
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [held.pk]):
        done = clean()
    assert done.skipped == [str(held.pk)]
    assert set(Run.objects.values_list("pk", flat=True)) == {held.pk}
    assert free.pk != held.pk
    assert clean().skipped == []
    assert not Run.objects.exists()


# C116: a lock on something of a run costs a moment, not the cleaner.
def test_row_that_somebody_holds_costs_the_timeout_and_its_run_alone(clean, second):
    held = full_run()
    full_run()
    event = RunEvent.objects.filter(run=held)[0]
    with holding(second, "SELECT 1 FROM runs_event WHERE id = %s FOR UPDATE", [event.pk]):
        done = clean()
    assert done.skipped == [str(held.pk)]
    assert set(Run.objects.values_list("pk", flat=True)) == {held.pk}
    assert left_of(held)["temp_file"] == 1, "what was not all done was not done at all"
    clean()
    assert not Run.objects.exists()


# C116
def test_second_cleaner_goes_away_at_once(clean, second):
    full_run()
    clean()
    full_run()
    with holding(second, "SELECT 1 FROM runs_retention_lane WHERE name = 'runs' FOR UPDATE"):
        done = clean()
    assert (done.busy, done.rows, Run.objects.count()) == (True, 0, 1)
    assert clean().rows > 0


def test_two_cleaners_at_once_remove_each_thing_once(cleaning, transactional_db):
    from durableops.engine.database import Database

    for _ in range(12):
        full_run()
    other = Database(name="another")
    as_of = cleaning.fetch("SELECT now()")[0][0]
    work = [Background(partial(Cleaner(db, by="t", runs=2).clean, as_of)) for db in (cleaning, other)]
    done = [one.result() for one in work]
    other.close()
    if Run.objects.exists():  # one of them went away while the other was at it
        done.append(Cleaner(cleaning, by="t").clean(as_of))
    assert not Run.objects.exists()
    assert sum(one.rows for one in done) == sum(Cleanup.objects.values_list("rows", flat=True))
    assert sum(Cleanup.objects.filter(kind="runs_run").values_list("rows", flat=True)) == 12


# C119
def test_late_checkpoint_of_a_run_that_is_gone_is_refused_and_leaves_no_orphan(engine, clean):
    class Facts(State):
        n: int = 0

    seen: dict[str, Any] = {}

    def a(run: Any):
        hand = run._hand
        seen["hand"] = hand
        engine.lose_worker()
        tenant = engine.tenant
        commands.cancel(hand.run_id, tenant=tenant, actor="ann", reason="over")
        Run.objects.filter(pk=hand.run_id).update(finished_at=now() - LONG_AGO, created_at=now() - LONG_AGO)
        clean()
        assert not Run.objects.exists()
        run.log("I am still here")
        run.artifact("late", b"late")

    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a")(a)}))
    engine.start("one")
    engine.worker.drain()
    assert not Run.objects.exists()
    for model in (Checkpoint, RunEvent, IdempotencyRecord):
        assert not model.objects.exists()
    # Told in our log instead, and its file is removed: nothing will name it.
    reject_late_result(engine.worker.database, seen["hand"], FenceLost("late"))
    assert not RunEvent.objects.exists()
    clean()
    assert on_disk() == 0


def test_completed_run_is_never_run_again_because_its_data_is_gone(engine, clean):
    class Facts(State):
        n: int = 0

    entered = []
    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a")(lambda run: entered.append(1))}))
    run = engine.run("one")
    Run.objects.filter(pk=run.pk).update(finished_at=now() - timedelta(days=100))
    clean()
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, entered, Checkpoint.objects.filter(run=run).count()) == ("succeeded", [1], 1)


@pytest.mark.parametrize("state", ["failed", "timed_out", "exhausted"])
def test_run_that_was_cleaned_is_refused_to_be_reopened_with_the_reason(clean, state):
    run = full_run(state, ago=timedelta(days=31))
    clean()
    with pytest.raises(TransitionRefused, match="retention removed on"):
        commands.retry(run.pk, tenant=run.tenant, actor="ann", reason="again")
    assert AuditEntry.objects.get().verb == "retry (refused)"


def test_run_past_its_window_is_not_reopened_even_before_it_was_cleaned():
    run = full_run("failed", ago=timedelta(days=31))
    with pytest.raises(TransitionRefused, match="could be reopened until"):
        commands.retry(run.pk, tenant=run.tenant, actor="ann", reason="again")
    run = full_run("failed", ago=timedelta(days=29))
    assert commands.retry(run.pk, tenant=run.tenant, actor="ann", reason="again").state == "queued"


# C122
def test_start_key_answers_with_its_run_as_long_as_the_row_is_there(engine, clean):
    from durableops.engine.start import start

    class Facts(State):
        n: int = 0

    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a")(lambda run: run.sleep(3600))}))
    first = start("one", {}, tenant=engine.tenant, actor="t", start_key="K")
    Run.objects.filter(pk=first.run_id).update(created_at=now() - LONG_AGO)
    engine.drain()
    clean()
    assert start("one", {}, tenant=engine.tenant, actor="t", start_key="K").run_id == first.run_id
    Run.objects.filter(pk=first.run_id).update(state="succeeded", finished_at=now() - timedelta(days=399))
    clean()
    assert start("one", {}, tenant=engine.tenant, actor="t", start_key="K").run_id == first.run_id


def test_later_run_never_meets_a_leftover_of_an_earlier_one(engine, clean):
    """The same key, the same names: nothing of the run that is gone answers the one that comes after it."""
    from durableops.engine.start import start

    class Facts(State):
        n: int = 0

    asked: list[int] = []

    def model() -> int:
        asked.append(1)
        return len(asked)

    def a(run: Any):
        run.artifact("rows", b"of this run")
        return [run.decide("d", {}, model), run.open_artifact("rows").read().decode()]

    workflow(name="one", version=1, state=Facts)(type("One", (), {"a": step(id="a")(a)}))
    first = start("one", {}, tenant=engine.tenant, actor="t", start_key="K")
    engine.drain()
    Run.objects.filter(pk=first.run_id).update(finished_at=now() - LONG_AGO, created_at=now() - LONG_AGO)
    IdempotencyRecord.objects.update(completed_at=now() - LONG_AGO)
    clean()
    second = start("one", {}, tenant=engine.tenant, actor="t", start_key="K")
    engine.drain()
    assert (second.created, asked) == (True, [1, 1])
    assert Checkpoint.objects.get(run=second.run_id, kind="finish").output == '[2,"of this run"]'


def test_more_rows_than_fit_go_in_several_steps_each_recorded(clean):
    run = full_run()
    RunEvent.objects.bulk_create([RunEvent(run=run, event="e", data={}) for _ in range(50)])
    done = clean(rows=7)
    assert not Run.objects.exists()
    assert sum(Cleanup.objects.filter(kind="runs_event").values_list("rows", flat=True)) == 53
    assert max(Cleanup.objects.values_list("rows", flat=True)) <= 7
    assert sum(Cleanup.objects.values_list("rows", flat=True)) == done.rows


def test_many_runs_go_in_several_steps(clean):
    for _ in range(7):
        full_run()
    done = clean(runs=2)
    assert (Run.objects.count(), done.by_class["effect_key"] >= 7) == (0, True)


@pytest.mark.parametrize("point", ["before_cleaning", "after_cleaning", "before_file_removed", "after_file_removed"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_cleaner_that_dies_anywhere_is_finished_by_the_next(clean, point, nth):
    for _ in range(3):
        full_run()
    failpoints.arm(f"{point}=raise@{nth}")
    with pytest.raises(failpoints.FailpointReached):
        clean(runs=1)
    failpoints.arm("")
    recorded = sum(Cleanup.objects.filter(kind="runs_run").values_list("rows", flat=True))
    assert recorded == 3 - Run.objects.count()
    clean(runs=1)
    assert (Run.objects.count(), on_disk(), LooseFile.objects.count()) == (0, 0, 0)
    assert sum(Cleanup.objects.filter(kind="runs_run").values_list("rows", flat=True)) == 3


def test_file_of_another_artifact_with_the_same_bytes_stays(clean):
    gone, kept = full_run(), full_run(ago=DAY)
    assert gone.artifacts.get(data_class="deliverable").content_hash == kept.artifacts.get(
        data_class="deliverable").content_hash  # fmt: skip
    clean()
    file = kept.artifacts.get(data_class="deliverable")
    assert b"".join(storage.read(file.path, content_hash=file.content_hash, sealed=False)) == b"content"


def test_holding_a_run_keeps_it_and_lifting_lets_it_go_with_the_next_look(clean, cleaning):
    run = full_run()
    hold = holds.place(tenant=run.tenant, run_id=run.pk, actor="ada", reason="court")
    clean()
    assert classes_left(run) == set(CLASSES)
    assert RunSummary.objects.get(run=run).kept["checkpoint"] == ["legal_hold"]
    holds.lift(hold.pk, tenant=run.tenant, actor="ada", reason="over")
    assert clean().rows == 0, "it is looked at again later, unless it is asked for"
    while relooks.look_again(cleaning):
        pass
    clean()
    assert not Run.objects.exists()


def test_shorter_rule_is_applied_to_runs_that_were_looked_at_already(clean, cleaning, monkeypatch):
    monkeypatch.setattr(relooks, "BATCH", 2)
    runs = [full_run(ago=timedelta(days=10)) for _ in range(5)]
    other = full_run(ago=timedelta(days=10), tenant=make_tenant("other"))
    clean()
    assert "decision" in classes_left(runs[0])
    rules.set_rule("decision", keeps="seconds", seconds=0, tenant=runs[0].tenant, actor="ada", reason="less")
    while relooks.look_again(cleaning):
        pass
    clean()
    assert all("decision" not in classes_left(run) for run in runs)
    assert "decision" in classes_left(other)


# C118
def test_events_that_no_run_needs_go_by_primary_key_and_the_walk_is_bounded(clean, cleaning):
    tenant, other = make_tenant(), make_tenant("other")
    old = now() - timedelta(days=91)
    make_run(state="waiting", tenant=other, created_at=old - DAY)
    for owner, at in ((tenant, old), (other, old), (tenant, now())):
        for n in range(3):
            event = InboundEvent.objects.create(
                tenant=owner, name="go", payload_hash=str(n), sent_by="t", payload='"x"'
            )
            InboundEvent.objects.filter(pk=event.pk).update(received_at=at)
    clean(rows=2)
    assert set(InboundEvent.objects.values_list("tenant__slug", flat=True)) == {"acme", "other"}
    assert InboundEvent.objects.filter(received_at__lt=now() - DAY, tenant=tenant).count() == 0
    assert InboundEvent.objects.filter(tenant=other).count() == 3
    assert RetentionLane.objects.get(name="inbound").position == 0
    with cleaning.transaction() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT t.id FROM runs_inbound_event t WHERE t.id > 0 ORDER BY t.id LIMIT 1000")
        assert any("runs_inbound_event_pkey" in line for (line,) in cursor.fetchall())


def test_audit_is_kept_unless_a_rule_says_otherwise_and_never_what_a_hold_needs(clean):
    run = full_run(ago=HOUR)
    tenant = run.tenant
    for target in (str(run.pk), "x"):
        entry = AuditEntry.objects.create(tenant=tenant, actor="a", verb="v", target_kind="run", target_id=target)
        with connection.cursor() as cursor:
            cursor.execute("BEGIN; ALTER TABLE runs_audit_entry DISABLE TRIGGER USER;"
                           f"UPDATE runs_audit_entry SET at = now() - interval '100 days' WHERE id = {entry.pk};"
                           "ALTER TABLE runs_audit_entry ENABLE TRIGGER USER; COMMIT")  # fmt: skip
    clean()
    assert AuditEntry.objects.count() == 2
    holds.place(tenant=tenant, run_id=run.pk, actor="ada", reason="court")
    rules.set_rule("audit", keeps="seconds", seconds=99 * 86400, tenant=tenant, actor="ada", reason="law")
    clean()
    assert set(AuditEntry.objects.values_list("verb", flat=True)) == {"v", "place_hold", "set_retention"}
    assert AuditEntry.objects.filter(target_id="x").count() == 0
    one = Cleanup.objects.get(data_class="audit")
    assert (one.rows, one.seconds, one.tenant) == (1, 99 * 86400, tenant)


def test_effect_of_a_cleaned_run_is_counted_in_doubt_by_nobody(clean):
    run = full_run(ago=timedelta(days=100))
    make_effect(run, state="refused", completed_at=run.finished_at, error_message="no")
    clean()
    assert set(IdempotencyRecord.objects.filter(run=run).values_list("state", "error_message")) == {
        ("succeeded", ""), ("refused", ""),
    }  # fmt: skip

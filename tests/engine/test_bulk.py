"""Bulk actions: the runs are captured once, each is done once, and what came of each is on record."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from durableops import failpoints
from durableops.engine.bulk import capture, control, executing, reading
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import BulkVerb, verb, verbs
from durableops.engine.commands import Done
from durableops.errors import BulkNotFound, BulkRefused, InputRefused
from durableops.failpoints import FailpointReached
from durableops.upkeep.bulk import BulkThread, forget_previews
from durableops.upkeep.rounds import Rounds
from runs.ids import uuid7
from runs.models import AuditEntry, Bulk, BulkItem, Run
from tests.factories import make_effect, make_run, make_tenant
from tests.fixtures.engine import Background, holding, until_blocked
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

WHY: dict[str, Any] = {"actor": "ann", "reason": "because"}


def previewed(name: str, runs: list[Run], *, tenant=None, **more: Any) -> Bulk:
    selection = Selection(words=f"{len(runs)} selected", ids=[run.pk for run in runs])
    return capture.preview(verb(name), selection, tenant=tenant or make_tenant(), actor="ann", **more)


def started(name: str, runs: list[Run], **more: Any) -> Bulk:
    bulk = previewed(name, runs, **more)
    return control.start(bulk.pk, tenant=bulk.tenant, **WHY)


def outcomes(bulk: Bulk) -> dict[Any, str]:
    return dict(BulkItem.objects.filter(bulk=bulk).values_list("run_id", "state"))


def fresh(bulk: Bulk) -> Bulk:
    bulk.refresh_from_db()
    return bulk


def finish(bulk: Bulk) -> Bulk:
    while executing.execute_batch():
        pass
    return fresh(bulk)


@pytest.fixture
def own_verb(monkeypatch):
    """A verb of this test's own, known for its length."""

    def make(apply: Any) -> BulkVerb:
        made = BulkVerb(name="own", label="Own", apply=apply, fits="true", wants="any run")
        monkeypatch.setitem(verbs_by_name(), "own", made)
        return made

    return make


def verbs_by_name() -> dict[str, BulkVerb]:
    from durableops.engine.bulk import verbs as module

    return module._verbs


def test_preview_captures_ids_and_does_nothing(tenant, clean_queue):
    runs = [make_run(state="failed") for _ in range(3)]
    bulk = previewed("retry", runs)
    make_run(state="failed")
    assert (bulk.state, bulk.runs, bulk.selection["words"]) == ("preview", 3, "3 selected")
    assert outcomes(bulk) == {run.pk: "pending" for run in runs}
    assert executing.execute_batch() == 0
    assert set(Run.objects.values_list("state", flat=True)) == {"failed"}
    assert not AuditEntry.objects.exists()


def test_started_action_does_exactly_the_captured_runs_whatever_matches_by_then(tenant, clean_queue):  # C125
    runs = [make_run(state="failed") for _ in range(3)]
    selection = Selection(words="state:failed", sql="SELECT r.id FROM runs_run r WHERE r.state = 'failed'")
    bulk = capture.preview(verb("retry"), selection, tenant=tenant, actor="ann")
    late = make_run(state="failed")
    control.start(bulk.pk, tenant=tenant, **WHY)
    assert finish(bulk).state == "done"
    assert set(outcomes(bulk)) == {run.pk for run in runs}
    assert Run.objects.get(pk=late.pk).state == "failed"
    assert Run.objects.filter(state="queued").count() == 3


def test_each_run_has_its_own_audit_entry_beside_that_of_the_action(tenant, clean_queue):
    bulk = finish(started("cancel", [make_run(), make_run()]))
    told = list(AuditEntry.objects.order_by("id").values_list("verb", "actor", "reason"))
    reason = f"because (bulk action {bulk.pk})"
    assert told == [("bulk_start", "ann", "because"), ("cancel", "ann", reason), ("cancel", "ann", reason)]
    entry = AuditEntry.objects.get(verb="bulk_start")
    assert (entry.target_kind, entry.target_id, entry.after["runs"]) == ("bulk", str(bulk.pk), 2)


def test_refused_runs_are_listed_with_why_and_the_others_are_done(tenant, clean_queue):
    fits, finished = make_run(), make_run(state="succeeded")
    bulk = finish(started("cancel", [fits, finished]))
    assert (bulk.state, outcomes(bulk)) == ("done", {fits.pk: "done", finished.pk: "refused"})
    line = BulkItem.objects.get(bulk=bulk, state="refused")
    assert "is succeeded; 'cancel' needs an open run" in line.message
    assert AuditEntry.objects.filter(verb="cancel (refused)", target_id=str(finished.pk)).count() == 1
    assert reading.counts(bulk) == reading.Counts(done=1, refused=1)


def test_verb_that_breaks_on_one_run_does_not_keep_the_others_from_it(tenant, own_verb):  # C010
    def apply(run_id: Any, **said: Any) -> Done:
        if run_id == runs[0].pk:
            Run.objects.filter(pk=run_id).update(step_id="half")
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        Run.objects.filter(pk=run_id).update(step_id="whole")
        return Done(run_id=run_id, state="queued", settled=True, message="done.")

    own_verb(apply)
    runs = [make_run(), make_run()]
    bulk = finish(started("own", runs))
    assert (bulk.state, outcomes(bulk)) == ("done", {runs[0].pk: "failed", runs[1].pk: "done"})
    assert [Run.objects.get(pk=run.pk).step_id for run in runs] == ["first", "whole"]
    assert "division by zero" in BulkItem.objects.get(bulk=bulk, state="failed").message


def test_runs_of_another_tenant_are_not_captured(tenant):  # C143
    mine, theirs = make_run(), make_run(tenant=make_tenant("other"))
    bulk = previewed("cancel", [mine, theirs])
    assert set(outcomes(bulk)) == {mine.pk}
    everything = Selection(words="all", sql="SELECT r.id FROM runs_run r")
    assert capture.preview(verb("cancel"), everything, tenant=tenant, actor="ann").runs == 1
    with pytest.raises(InputRefused, match="no run of this tenant"):
        previewed("cancel", [theirs])


def test_more_runs_than_one_action_takes_are_refused_and_leave_nothing(tenant):
    few = replace(verb("cancel"), most=2)
    for _ in range(3):
        make_run()
    with pytest.raises(InputRefused, match="more than 2 runs match"):
        capture.preview(few, Selection(words="all", sql="SELECT r.id FROM runs_run r"), tenant=tenant, actor="ann")
    assert not Bulk.objects.exists()


def test_run_named_twice_is_captured_once(tenant):
    run = make_run()
    assert previewed("cancel", [run, run]).runs == 1


def test_action_of_another_tenant_is_not_found(tenant):  # C143
    bulk = previewed("cancel", [make_run()])
    for what in (control.start, control.hold, control.go_on, control.abort):
        with pytest.raises(BulkNotFound):
            what(bulk.pk, tenant=make_tenant("other"), **WHY)
    with pytest.raises(BulkNotFound):
        control.discard(bulk.pk, tenant=make_tenant("other"))


@pytest.mark.parametrize(
    ("state", "what", "after"),
    [
        ("preview", "start", "running"), ("preview", "hold", None), ("preview", "go_on", None),
        ("preview", "abort", None),
        ("running", "start", None), ("running", "hold", "paused"), ("running", "go_on", None),
        ("running", "abort", "aborted"), ("paused", "start", None), ("paused", "hold", None),
        ("paused", "go_on", "running"), ("paused", "abort", "aborted"), ("aborted", "start", None),
        ("aborted", "go_on", None), ("done", "start", None), ("done", "abort", None),
    ],
)  # fmt: skip
def test_what_people_may_do_in_each_state(tenant, clean_queue, state, what, after):
    bulk = previewed("cancel", [make_run(), make_run()])
    if state != "preview":
        control.start(bulk.pk, tenant=tenant, **WHY)
    if state == "paused":
        control.hold(bulk.pk, tenant=tenant, **WHY)
    if state == "aborted":
        control.abort(bulk.pk, tenant=tenant, **WHY)
    if state == "done":
        finish(bulk)
    entries = AuditEntry.objects.count()
    if after:
        assert getattr(control, what)(bulk.pk, tenant=tenant, actor="bob", reason="so").state == after
        assert fresh(bulk).state == after
        assert AuditEntry.objects.count() == entries + 1
        return
    with pytest.raises(BulkRefused, match=f"is {state}.*Nothing was changed"):
        getattr(control, what)(bulk.pk, tenant=tenant, actor="bob", reason="so")
    assert fresh(bulk).state == state


def test_start_wants_a_reason(tenant):
    bulk = previewed("cancel", [make_run()])
    with pytest.raises(InputRefused, match="wants a reason"):
        control.start(bulk.pk, tenant=tenant, actor="ann", reason="  ")


def test_preview_can_be_discarded_and_a_started_action_cannot(tenant):
    bulk = previewed("cancel", [make_run()])
    control.discard(bulk.pk, tenant=tenant)
    assert not Bulk.objects.exists()
    assert not BulkItem.objects.exists()
    running = started("cancel", [make_run()])
    with pytest.raises(BulkRefused, match="is running"):
        control.discard(running.pk, tenant=tenant)


def test_pause_holds_what_is_left_and_resume_lets_it_go_on(tenant, clean_queue):
    bulk = started("cancel", [make_run() for _ in range(3)])
    executing.execute_batch(1)
    control.hold(bulk.pk, tenant=tenant, **WHY)
    assert executing.execute_batch() == 0
    assert reading.counts(bulk) == reading.Counts(done=1, pending=2)
    control.go_on(bulk.pk, tenant=tenant, **WHY)
    assert (finish(bulk).state, reading.counts(bulk).done) == ("done", 3)


def test_abort_waits_for_the_run_in_hand_and_no_further_one_is_touched(tenant, clean_queue, second):
    runs = [make_run() for _ in range(3)]
    bulk = started("cancel", runs)
    first = BulkItem.objects.get(bulk=bulk, seq=1)
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [first.run_id]):
        hands = Background(lambda: executing.execute_batch(1))
        until_blocked()
        people = Background(lambda: control.abort(bulk.pk, tenant=tenant, **WHY))
        until_blocked(count=2)
    assert hands.result() == 1
    assert people.result().state == "aborted"
    assert executing.execute_batch() == 0
    assert reading.counts(bulk) == reading.Counts(done=1, pending=2)
    assert fresh(bulk).finished_at is not None


def test_two_executors_share_the_runs_and_do_none_twice(tenant, clean_queue, own_verb):
    done: list[Any] = []
    both = threading.Barrier(2, timeout=10)

    def apply(run_id: Any, **said: Any) -> Done:
        if len(done) < 2:
            done.append(run_id)
            both.wait()
        else:
            done.append(run_id)
        return Done(run_id=run_id, state="queued", settled=True, message="done.")

    own_verb(apply)
    runs = [make_run() for _ in range(10)]
    bulk = started("own", runs)
    hands = [Background(executing.execute_batch) for _ in range(2)]
    assert sum(one.result() for one in hands) == 10
    assert sorted(done) == sorted(run.pk for run in runs)
    assert finish(bulk).state == "done"


def test_executor_that_dies_before_the_commit_leaves_run_and_line_untouched_and_the_next_does_both(tenant, clean_queue):
    run = make_run()
    bulk = started("cancel", [run])
    failpoints.arm("before_bulk_item_commits=raise")
    try:
        with pytest.raises(FailpointReached):
            executing.execute_batch()
    finally:
        failpoints.arm("")
    run.refresh_from_db()
    assert (run.state, outcomes(bulk)) == ("queued", {run.pk: "pending"})
    finish(bulk)
    run.refresh_from_db()
    assert (run.state, outcomes(bulk), fresh(bulk).state) == ("cancelled", {run.pk: "done"}, "done")
    assert AuditEntry.objects.filter(verb="cancel").count() == 1


def test_run_whose_row_somebody_holds_is_put_off_and_the_others_are_done(tenant, clean_queue, second, monkeypatch):
    monkeypatch.setattr(executing, "LOCK_PATIENCE", "SET LOCAL lock_timeout = '50ms'")
    runs = [make_run() for _ in range(3)]
    bulk = started("cancel", runs)
    held = BulkItem.objects.get(bulk=bulk, seq=1)
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR NO KEY UPDATE", [held.run_id]):
        assert executing.execute_batch() == 2
    held.refresh_from_db()
    assert (held.state, held.tries, fresh(bulk).state) == ("pending", 1, "running")
    BulkItem.objects.filter(bulk=bulk).filter(state="pending").update(due_at=bulk.created_at)
    assert finish(bulk).state == "done"


def test_action_whose_verb_this_process_does_not_know_is_left_to_others(tenant, own_verb, monkeypatch):
    own_verb(lambda run_id, **said: None)
    bulk = started("own", [make_run()])
    monkeypatch.delitem(verbs_by_name(), "own")
    assert executing.execute_batch() == 0
    assert fresh(bulk).state == "running"


def test_thread_of_upkeep_executes_what_a_round_noticed(tenant, clean_queue):
    bulk = started("cancel", [make_run() for _ in range(3)])
    rounds = Rounds()
    rounds._bulk.start()
    try:
        rounds.make_one()
        eventually(lambda: fresh(bulk).state == "done", hoping_for="the action done")
    finally:
        rounds._bulk.end()
        rounds._database.close()


def test_thread_ends_while_it_sleeps():
    thread = BulkThread()
    thread.start()
    thread.end()
    assert not thread.is_alive()


def test_preview_that_nobody_started_is_forgotten_after_a_day(tenant, database):
    old, new, running = (
        previewed("cancel", [make_run()]),
        previewed("cancel", [make_run()]),
        started("cancel", [make_run()]),
    )
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_bulk SET created_at = now() - interval '25 hours' WHERE id IN (%s, %s)",
                       [old.pk, running.pk])  # fmt: skip
    assert forget_previews(database) == 1
    assert set(Bulk.objects.values_list("id", flat=True)) == {new.pk, running.pk}
    assert not BulkItem.objects.filter(bulk_id=old.pk).exists()


def test_preview_tells_what_it_would_meet(tenant):
    runs = [make_run(), make_run(paused=True, paused_by="bob"), make_run(state="succeeded")]
    found = reading.meets(previewed("pause", runs), verb("pause"))
    assert {(one.state, one.paused, one.fits, one.runs) for one in found} == {
        ("queued", False, True, 1), ("queued", True, False, 1), ("succeeded", False, False, 1)
    }  # fmt: skip


@pytest.mark.parametrize("state", ["queued", "running", "waiting", "in_doubt", "in_review", "succeeded", "failed",
                                   "cancelled", "timed_out", "exhausted"])  # fmt: skip
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("name", ["pause", "resume", "retry", "cancel"])
def test_what_the_preview_says_fits_is_what_the_verb_accepts(tenant, clean_queue, name, paused, state):
    over: dict[str, Any] = (
        {"paused": True, "paused_by": "bob"} if paused and state not in ("succeeded", "failed") else {}
    )
    run = make_run(state=state, **over)
    bulk = started(name, [run])
    [fits] = [one.fits for one in reading.meets(bulk, verb(name))]
    finish(bulk)
    assert outcomes(bulk)[run.pk] == ("done" if fits else "refused")


def test_results_come_in_pages_and_survive_their_runs(tenant, clean_queue):
    runs = [make_run() for _ in range(5)]
    bulk = finish(started("cancel", runs))
    first = reading.results(bulk, limit=3)
    second_page = reading.results(bulk, after=first.next or 0, limit=3)
    assert [row.item.seq for row in [*first.rows, *second_page.rows]] == [1, 2, 3, 4, 5]
    assert second_page.next is None
    BulkItem.objects.bulk_create([BulkItem(bulk=bulk, seq=6, run_id=uuid7())])
    assert reading.results(bulk, after=5).rows[0].run is None
    assert [row.item.state for row in reading.results(bulk, state="pending").rows] == ["pending"]


def test_every_verb_reads_its_arguments_and_refuses_what_it_does_not_know(tenant):
    for one in verbs():
        with pytest.raises(InputRefused):
            one.read({"nonsense": 1})
    with pytest.raises(InputRefused, match="there is no bulk action 'nothing'"):
        verb("nothing")


def test_bulk_retry_tells_beforehand_what_all_its_runs_would_send_again(tenant, clean_queue):
    runs = [make_run(state="failed") for _ in range(3)]
    for run in runs[:2]:
        make_effect(run, state="in_doubt", tool="charge")
    make_effect(runs[2], state="succeeded", tool="charge", result="1")
    plan = previewed("retry", runs).plan
    assert {(line["category"], line["tool"], line["calls"], line["runs"]) for line in plan["calls"]} == {
        ("again", "charge", 2, 2), ("reused", "charge", 1, 1)
    }  # fmt: skip


def test_bulk_whose_facts_changed_since_its_preview_is_refused_and_previewed_anew(tenant, clean_queue):
    runs = [make_run(state="failed") for _ in range(3)]
    bulk = previewed("retry", runs)
    shown = bulk.plan_hash
    make_effect(runs[0], state="in_doubt", tool="charge")
    with pytest.raises(BulkRefused, match="1 of its 3 runs have changed since it was shown"):
        control.start(bulk.pk, tenant=tenant, plan_hash=shown, **WHY)
    assert fresh(bulk).state == "preview"
    assert [line["tool"] for line in bulk.plan["calls"]] == ["charge"]
    with pytest.raises(BulkRefused, match="What it would send again has changed"):
        control.start(bulk.pk, tenant=tenant, plan_hash=shown, **WHY)
    control.start(bulk.pk, tenant=tenant, plan_hash=bulk.plan_hash, **WHY)
    assert finish(bulk).state == "done"


def test_run_whose_facts_change_while_the_action_runs_is_refused_alone(tenant, clean_queue):
    runs = [make_run(state="failed") for _ in range(2)]
    bulk = started("retry", runs)
    make_effect(runs[0], state="in_doubt", tool="charge")
    finish(bulk)
    assert outcomes(bulk) == {runs[0].pk: "refused", runs[1].pk: "done"}
    assert "has changed since it was shown" in BulkItem.objects.get(bulk=bulk, state="refused").message

"""Compensation: newest first, by tool or by a person, one undo for one effect, stopped half-way and continued."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from durableops import DoneEffect, Refused, failpoints, step, tool, workflow
from durableops.authoring import registry
from durableops.engine import commands, compensating
from durableops.engine.compensation import owing, undoing
from durableops.errors import InputRefused, TransitionRefused
from runs.models import AuditEntry, Compensation, IdempotencyRecord, Run, RunEvent
from tests.engine.bank import WHY, Facts, cancelled, linked, run_of, states, undone
from tests.factories import events_of, make_effect, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# Owing.


def test_cancelled_run_lists_what_it_did_as_owed_and_nothing_is_undone_by_itself(engine, bank):
    run = cancelled(engine, "charge:a", "mail:b", "post:c", done="later")
    assert (run.state, states(run)) == ("cancelled", ["owed", "owed"])
    assert [(one.effect.tool, one.how, one.tool) for one in undone(run)] == [
        ("post", "person", ""), ("charge", "tool", "refund")
    ]  # fmt: skip
    assert bank.refunds == {}
    assert Run.objects.filter(workflow=owing.WORKFLOW).count() == 0
    event = RunEvent.objects.get(run=run, event="compensation_owed")
    assert (event.data["owed"], event.actor, event.reason) == (2, "ann", "wrong customer")


def test_what_was_done_can_be_kept(engine, bank):
    run = cancelled(engine, "charge:a", done="keep")
    assert (run.state, states(run)) == ("cancelled", [])
    assert AuditEntry.objects.get(verb="cancel").after["done"] == "keep"


def test_cancel_refuses_what_it_does_not_know(engine, bank):
    run = run_of(engine, "charge:a")
    with pytest.raises(InputRefused, match="later, compensate, keep"):
        commands.cancel(run.pk, tenant=engine.tenant, done="maybe", **WHY)
    run.refresh_from_db()
    assert run.state == "waiting"


def test_running_run_is_undone_once_it_has_stopped_with_what_it_did_until_then(engine, bank):
    charge = registry.tool("charge")

    @workflow(name="busy", version=1, state=Facts)
    class Busy:
        @step
        def act(run: Any):
            run.call(charge, resource="a")
            commands.cancel(UUID(run.id), tenant=engine.tenant, done="compensate", **WHY)
            run.call(charge, resource="never")

    run = engine.run("busy")
    assert run.state == "cancelled"
    assert bank.charged == ["a"]
    engine.rounds()
    engine.drain()
    assert (states(run), bank.order) == (["done"], ["a"])


def test_order_given_by_a_process_that_died_is_applied_by_upkeep(engine, bank, database):
    run = cancelled(engine, "charge:a", done="keep")
    with database.transaction() as cursor:
        owing.order(cursor, run.pk, choice="compensate", actor="ann", reason="because")
    engine.rounds()
    engine.drain()
    assert states(run) == ["done"]
    assert owing.apply_ready(database) == 0


def test_effects_of_child_runs_are_undone_with_their_parents(engine, bank):
    charge = registry.tool("charge")

    @workflow(name="kid", version=1, state=Facts)
    class Kid:
        @step
        def act(run: Any):
            run.call(charge, resource=f"kid-{run.state.n}")

    @workflow(name="parent", version=1, state=Facts)
    class Parent:
        @step
        def act(run: Any):
            run.call(charge, resource="parent")
            run.children("kid", [{"n": 1}, {"n": 2}])
            run.approval("go on")

    run = engine.go_on(engine.run("parent"))
    assert sorted(bank.charged) == ["kid-1", "kid-2", "parent"]
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert sorted(bank.order) == ["kid-1", "kid-2", "parent"]
    assert bank.order[-1] == "parent"
    assert set(Compensation.objects.values_list("state", flat=True)) == {"done"}


def test_doubt_settled_with_compensate_is_owed_once_and_outlives_its_run(engine, bank, database):
    run = make_run(state="failed", tenant=engine.tenant)
    effect = make_effect(run, tool="charge", state="in_doubt")
    with database.transaction() as cursor:
        made = owing.owe(cursor, effect.pk, actor="bob", because="nobody knows")
        assert owing.owe(cursor, effect.pk, actor="bob", because="again") is None
    one = Compensation.objects.get()
    assert one.pk == made
    assert (one.state, one.how, one.tool, one.because) == ("owed", "tool", "refund", "bob: nobody knows")


def test_effect_of_a_tool_that_says_nothing_is_owed_as_a_persons_task(engine, bank, database):
    effect = make_effect(make_run(state="failed", tenant=engine.tenant), tool="unknown", state="in_doubt")
    with database.transaction() as cursor:
        owing.owe(cursor, effect.pk, actor="bob", because="nobody knows")
    one = Compensation.objects.get()
    assert one.how == "person"
    assert "Nothing says how unknown is undone" in one.instructions


def test_effect_that_turns_out_to_have_happened_after_the_order_is_owed_too(engine, bank, database):
    run = cancelled(engine, "charge:a", done="later")
    late = make_effect(run, tool="charge", state="in_doubt")
    unordered = make_effect(make_run(state="failed", tenant=engine.tenant), tool="charge", state="in_doubt")
    with database.transaction() as cursor:
        assert owing.owe_if_ordered(cursor, late.pk) is not None
        assert owing.owe_if_ordered(cursor, unordered.pk) is None
    assert states(run) == ["owed", "owed"]


# Undoing.


def test_linked_run_undoes_newest_first_with_the_facts_of_each_effect(engine, bank):
    run = cancelled(engine, "charge:a", "mail:x", "charge:b", "charge:c")
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])
    assert bank.asked == [{"downstream_id": f"charge-{name}"} for name in "cba"]
    work = linked(run)
    assert (work.state, work.workflow, work.created_by, work.labels) == (
        "succeeded", owing.WORKFLOW, "ann", {"undoes": str(run.pk)},
    )  # fmt: skip
    one = undone(run)[0]
    assert one.undo_effect is not None
    assert (one.settled_by, one.downstream_id, one.undo_effect.run_id) == (f"run {work.pk}", "refund-c", work.pk)
    assert (one.approved_by, one.evidence) == ("ann", "")
    told = [name for name in events_of(run) if name.startswith("compensation")]
    assert told == ["compensation_begun", *["compensation_running", "compensation_done"] * 3]
    run.refresh_from_db()
    assert run.state == "cancelled"


def test_finished_run_is_compensated_on_request_once(engine, bank):
    run = run_of(engine, "charge:a", "charge:b", ask=False)
    assert run.state == "failed"
    done = compensating.compensate(run.pk, tenant=engine.tenant, **WHY)
    assert "2 of its effects are being undone" in done.message
    with pytest.raises(TransitionRefused, match="nothing is, or all of it is being undone"):
        compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="me too")
    engine.drain()
    assert bank.order == ["b", "a"]
    with pytest.raises(TransitionRefused):
        compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="again")
    assert [e.verb for e in AuditEntry.objects.order_by("id")] == ["compensate", *["compensate (refused)"] * 2]


def test_open_run_is_not_compensated(engine, bank):
    run = run_of(engine, "charge:a")
    with pytest.raises(TransitionRefused, match="needs a finished run"):
        compensating.compensate(run.pk, tenant=engine.tenant, **WHY)


def test_run_of_which_undoing_has_begun_is_not_reopened(engine, bank):
    run = run_of(engine, "post:a", ask=False)
    compensating.compensate(run.pk, tenant=engine.tenant, **WHY)
    with pytest.raises(TransitionRefused, match="of which nothing is being undone"):
        commands.retry(run.pk, tenant=engine.tenant, **WHY)


def test_undo_that_fails_holds_those_after_it_until_a_person_lets_it_try_again(engine, bank):  # C043
    bank.script["b"] = [RuntimeError("away")] * 3
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    assert (states(run), bank.order) == (["done", "failed", "approved"], ["c"])
    failed = undone(run)[1]
    assert "gave up after 3 attempts: away" in failed.error
    assert linked(run).state == "waiting"
    engine.rounds()
    engine.drain()
    assert states(run) == ["done", "failed", "approved"]
    compensating.try_again(failed.pk, tenant=engine.tenant, actor="bob", reason="the bank is back")
    engine.drain()
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])
    assert len(bank.refunds) == 3
    assert undone(run)[1].error == ""
    assert linked(run).state == "succeeded"


def test_failed_undo_is_tried_again_and_again(engine, bank):  # C043
    bank.script["a"] = [RuntimeError("away")] * 4  # each entry after the first makes one attempt
    run = cancelled(engine, "charge:a")
    for _ in range(2):
        failed = undone(run)[0]
        assert failed.state == "failed"
        compensating.try_again(failed.pk, tenant=engine.tenant, actor="bob", reason="now")
        engine.drain()
    assert (states(run), bank.order) == (["done"], ["a"])
    assert IdempotencyRecord.objects.filter(tool="refund").count() == 1


def test_refused_undo_is_tried_again_as_a_call_of_its_own(engine, bank):
    bank.script["a"] = [Refused("no money left")]
    run = cancelled(engine, "charge:a")
    one = undone(run)[0]
    assert (one.state, one.error, one.spent_slots) == ("failed", "no money left", 1)
    compensating.try_again(one.pk, tenant=engine.tenant, actor="bob", reason="there is some")
    engine.drain()
    assert states(run) == ["done"]
    assert list(IdempotencyRecord.objects.filter(tool="refund").order_by("id").values_list("state", flat=True)) == [
        "refused", "succeeded"
    ]  # fmt: skip


def test_failed_undo_is_waived_or_done_by_hand_and_the_next_one_follows(engine, bank):  # C043
    bank.script["b"], bank.script["c"] = [Refused("no")], [Refused("no")]
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    first, second, _ = undone(run)
    assert states(run) == ["failed", "approved", "approved"]
    with pytest.raises(InputRefused, match="say why"):
        compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason=" ")
    compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason="too old")
    engine.drain()
    assert states(run) == ["waived", "failed", "approved"]
    compensating.report_done(second.pk, tenant=engine.tenant, actor="bob", evidence="receipt 7", downstream_id="R7")
    engine.drain()
    assert (states(run), bank.order) == (["waived", "done", "done"], ["a"])
    second.refresh_from_db()
    assert (second.settled_by, second.evidence, second.downstream_id) == ("bob", "receipt 7", "R7")
    assert linked(run).state == "succeeded"


@pytest.mark.parametrize("point", ["before_intent", "after_intent", "after_answer"])
def test_undo_interrupted_anywhere_is_done_once(engine, bank, point):  # C044
    run = run_of(engine, "charge:a", "charge:b")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    failpoints.arm(f"{point}=raise")
    try:
        engine.drain()
    finally:
        failpoints.arm("")
    work = linked(run)
    assert (work.state, work.error_class) == ("queued", "durableops.failpoints.FailpointReached")
    engine.go_on(work)
    assert (states(run), bank.order) == (["done", "done"], ["b", "a"])
    assert len(bank.refunds) == 2


def test_undo_whose_linked_run_was_cancelled_after_the_refund_is_found_by_the_next_one(
    engine, bank, monkeypatch
):  # C044
    run = run_of(engine, "charge:a", "charge:b")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    real = undoing._mark
    monkeypatch.setattr(
        undoing, "_mark", lambda run, one, *given, **more: _cancel_then(engine, run, real, one, given, more)
    )
    engine.drain()
    monkeypatch.setattr(undoing, "_mark", real)
    assert (linked(run).state, bank.order) == ("cancelled", ["b"])
    engine.rounds()
    assert states(run) == ["owed", "owed"]
    compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="go on")
    engine.drain()
    assert (states(run), bank.order, len(bank.refunds)) == (["done", "done"], ["b", "a"], 2)


def _cancel_then(engine: Any, run: Any, real: Any, one: Compensation, given: Any, more: Any) -> None:
    """The linked run is cancelled just when the refund is on record and the compensation does not say so yet."""
    if more["event"] == "compensation_done":
        commands.cancel(run.hand.run_id, tenant=engine.tenant, done="keep", **WHY)
        return
    real(run, one, *given, **more)


def test_late_worker_cannot_move_a_compensation_on(engine, bank):
    run = run_of(engine, "charge:a")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    late: list[Any] = []

    def slow(call, **request):
        late.append(call.key)
        if len(late) == 1:
            engine.lose_worker()
            engine.drain()
        return {"id": "r"}

    bank.refund = slow
    engine.drain()
    assert states(run) == ["done"]
    assert len(set(late)) == 1
    assert [name for name in events_of(run) if name == "compensation_done"] == ["compensation_done"]


def test_linked_run_that_ended_leaves_what_is_left_as_owed_and_another_goes_on(engine, bank):  # C043
    bank.script["b"] = [Refused("no")]
    run = cancelled(engine, "charge:a", "charge:b", "charge:c")
    commands.cancel(linked(run).pk, tenant=engine.tenant, actor="bob", reason="stop")
    engine.rounds()
    assert states(run) == ["done", "owed", "owed"]
    assert "compensation_owed" in events_of(run)
    compensating.compensate(run.pk, tenant=engine.tenant, actor="bob", reason="go on")
    engine.drain()
    assert (states(run), bank.order) == (["done"] * 3, ["c", "b", "a"])


def test_request_of_the_undo_is_made_by_the_author(engine, bank):
    seen: list[DoneEffect] = []

    @tool(safety="keyed", name="unbook")
    def unbook(call, *, seat: int, note: str):
        return {"gone": seat}

    def request(effect: DoneEffect) -> dict[str, Any]:
        seen.append(effect)
        return {"seat": effect.result["seat"], "note": f"of {effect.author_key}"}

    @tool(safety="keyed", name="book", compensate=unbook, undo_request=request)
    def book(call, *, name: str):
        return {"seat": 12}

    @workflow(name="trip", version=1, state=Facts)
    class Trip:
        @step
        def act(run: Any):
            run.call(book, resource="flight", key="k", name="Ann")
            run.approval("go on")

    run = engine.run("trip")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert states(run) == ["done"]
    assert (seen[0].tool, seen[0].resource, seen[0].author_key, seen[0].request) == (
        "book", "flight", "k", {"name": "Ann"}
    )  # fmt: skip
    assert IdempotencyRecord.objects.get(tool="unbook").request_summary == {"seat": 12, "note": "of k"}


def test_undo_request_that_raises_is_a_failed_compensation_and_not_a_failed_run(engine, bank):
    refund = registry.tool("refund")

    @tool(
        safety="keyed", name="odd", compensate=refund, undo_request=lambda effect: {"downstream_id": effect.result["x"]}
    )
    def odd(call):
        return {}

    @workflow(name="odd", version=1, state=Facts)
    class Odd:
        @step
        def act(run: Any):
            run.call(odd, resource="a")
            run.approval("go on")

    run = engine.run("odd")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert states(run) == ["failed"]
    assert "undo_request of odd failed: builtins.KeyError" in undone(run)[0].error
    assert linked(run).state == "waiting"


def test_tool_that_is_gone_is_a_failed_compensation(engine, bank):
    run = run_of(engine, "charge:a")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    Compensation.objects.update(tool="forgotten")
    engine.drain()
    assert "tool 'forgotten' is not known to this worker" in undone(run)[0].error

"""What people decide about compensation: tasks, evidence, second persons, two at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from durableops import step, tool, workflow
from durableops.engine import commands, compensating
from durableops.engine.compensation import owing
from durableops.errors import CompensationNotFound, InputRefused, TransitionRefused
from runs.models import AuditEntry, Compensation, IdempotencyRecord, Run
from runs.models.compensation import MOVES
from tests.engine.bank import ONCE, WHY, Facts, cancelled, linked, run_of, states, undone
from tests.factories import events_of, make_due, make_effect, make_run, make_tenant
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# People.


def test_persons_task_waits_for_evidence(engine, bank):
    run = cancelled(engine, "charge:a", "post:b")
    task, _ = undone(run)
    assert (states(run), task.instructions) == (["running", "approved"], "Reverse it in the ledger.")
    with pytest.raises(InputRefused, match="say what proves it"):
        compensating.report_done(task.pk, tenant=engine.tenant, actor="bob", evidence="  ")
    compensating.report_done(task.pk, tenant=engine.tenant, actor="bob", evidence="journal 12")
    engine.drain()
    assert (states(run), bank.order) == (["done", "done"], ["a"])


def test_tool_with_four_eyes_is_called_only_once_a_second_person_agrees(engine, bank):
    run = cancelled(engine, "charge:a", "big:b")
    one = undone(run)[0]
    assert (states(run), one.proposed_by, bank.order) == (["proposed", "approved"], "ann", [])
    with pytest.raises(TransitionRefused, match="another person than ann"):
        compensating.approve(one.pk, tenant=engine.tenant, actor="ann")
    assert states(run)[0] == "proposed"
    compensating.approve(one.pk, tenant=engine.tenant, actor="bob")
    engine.drain()
    assert (states(run), bank.order) == (["done", "done"], ["b", "a"])
    one.refresh_from_db()
    assert (one.proposed_by, one.approved_by) == ("ann", "bob")


def test_task_with_four_eyes_counts_only_once_a_second_person_agrees(engine, bank):
    run = cancelled(engine, "careful:a")
    one = undone(run)[0]
    compensating.report_done(one.pk, tenant=engine.tenant, actor="bob", evidence="journal 12")
    assert states(run) == ["proposed"]
    with pytest.raises(TransitionRefused, match="another person than bob"):
        compensating.approve(one.pk, tenant=engine.tenant, actor="bob")
    compensating.send_back(one.pk, tenant=engine.tenant, actor="cid", reason="not in the journal")
    assert (states(run), undone(run)[0].evidence) == (["running"], "")
    compensating.report_done(one.pk, tenant=engine.tenant, actor="bob", evidence="journal 13")
    compensating.approve(one.pk, tenant=engine.tenant, actor="cid")
    engine.drain()
    one.refresh_from_db()
    assert (one.state, one.settled_by, one.proposed_by, one.approved_by) == ("done", "bob", "bob", "cid")
    assert linked(run).state == "succeeded"


def test_owed_compensation_is_waived_or_done_without_a_linked_run(engine, bank):
    run = cancelled(engine, "charge:a", "charge:b", done="later")
    first, second = undone(run)
    compensating.waive(first.pk, tenant=engine.tenant, actor="bob", reason="small")
    compensating.report_done(second.pk, tenant=engine.tenant, actor="bob", evidence="R1")
    assert states(run) == ["waived", "done"]
    assert [e.verb for e in AuditEntry.objects.filter(actor="bob").order_by("id")] == [
        "waive_compensation", "compensation_done_by_hand"
    ]  # fmt: skip
    assert events_of(run)[-2:] == ["waive_compensation", "compensation_done_by_hand"]


WAYS_THERE = {"running": ["approved", "running"], "failed": ["approved", "running", "failed"]}


def put(state: str, work: Run) -> None:
    """Bring the only compensation from owed to a state, along legal moves."""
    for one in WAYS_THERE.get(state, [state]):
        final = one in ("done", "waived")
        Compensation.objects.update(
            state=one, proposed_by="ann" if one == "proposed" else "", reason="r", evidence="e",
            linked_run=None if one == "owed" else work, settled_by="x" if final else "",
            settled_at=work.created_at if final else None,
        )  # fmt: skip


@pytest.mark.parametrize("state", MOVES)
@pytest.mark.parametrize("verb", ["approve", "send_back", "report_done", "try_again", "waive", "claim"])
def test_verb_fits_the_state_or_changes_nothing_and_is_audited_either_way(engine, bank, verb, state):
    run = cancelled(engine, "charge:a", done="later")
    work = make_run(tenant=engine.tenant)
    put(state, work)
    legal = {
        "approve": {"proposed"}, "send_back": {"proposed"}, "report_done": {"owed", "approved", "failed"},
        "try_again": {"failed"}, "waive": {"owed", "proposed", "approved", "failed"},
        "claim": set(MOVES) - {"done", "waived"},
    }[verb]  # fmt: skip
    one = undone(run)[0]
    before = Compensation.objects.filter(pk=one.pk).values().get()
    given: dict[str, Any] = {"actor": "bob", "reason": "because"}
    if verb == "report_done":
        given["evidence"] = "R"
    if state in legal:
        getattr(compensating, verb)(one.pk, tenant=engine.tenant, **given)
        assert AuditEntry.objects.filter(actor="bob").count() == 1
        return
    with pytest.raises(TransitionRefused, match="Nothing was changed"):
        getattr(compensating, verb)(one.pk, tenant=engine.tenant, **given)
    assert Compensation.objects.filter(pk=one.pk).values().get() == before
    assert AuditEntry.objects.get(actor="bob").verb.endswith("(refused)")


def test_compensation_of_another_tenant_is_not_found(engine, bank):  # C143
    run = cancelled(engine, "charge:a", done="later")
    one = undone(run)[0]
    for verb in (compensating.waive, compensating.claim, compensating.approve, compensating.try_again):
        with pytest.raises(CompensationNotFound):
            verb(one.pk, tenant=make_tenant("other"), **WHY)
    assert states(run) == ["owed"]


def test_of_two_who_decide_at_once_one_wins_and_the_other_hears_who(engine, bank):  # C046
    run = cancelled(engine, "charge:a", done="later")
    one = undone(run)[0]
    people = [
        Background(lambda: compensating.waive(one.pk, tenant=engine.tenant, actor="bob", reason="small")),
        Background(lambda: compensating.report_done(one.pk, tenant=engine.tenant, actor="cid", evidence="R1")),
    ]
    ended: list[Any] = []
    for person in people:
        try:
            ended.append(person.result())
        except TransitionRefused as refused:
            ended.append(refused)
    lost = [error for error in ended if isinstance(error, TransitionRefused)]
    assert len(lost) == 1
    one.refresh_from_db()
    assert f"is {one.state} ({one.settled_by}, " in str(lost[0])
    assert AuditEntry.objects.filter(verb__in=["waive_compensation", "compensation_done_by_hand"]).count() == 1


def test_two_who_begin_at_once_begin_once(engine, bank):  # C046
    run = run_of(engine, "charge:a", ask=False)
    said: dict[str, Any] = {"tenant": engine.tenant, "reason": "r"}
    people = [Background(partial(compensating.compensate, run.pk, actor=who, **said)) for who in ("bob", "cid")]
    outcomes = []
    for person in people:
        try:
            outcomes.append(person.result().message)
        except TransitionRefused as refused:
            outcomes.append(str(refused))
    assert sum("being undone by run" in text for text in outcomes) == 1
    engine.drain()
    assert (states(run), bank.order, Run.objects.filter(workflow=owing.WORKFLOW).count()) == (["done"], ["a"], 1)


def test_task_somebody_is_on_says_who_and_is_free_again(engine, bank):
    run = cancelled(engine, "post:a", done="later")
    one = undone(run)[0]
    compensating.claim(one.pk, tenant=engine.tenant, actor="bob")
    with pytest.raises(TransitionRefused, match="bob"):
        compensating.claim(one.pk, tenant=engine.tenant, actor="cid")
    compensating.unclaim(one.pk, tenant=engine.tenant, actor="cid")
    compensating.claim(one.pk, tenant=engine.tenant, actor="cid")
    one.refresh_from_db()
    assert one.claimed_by == "cid"


def test_built_in_workflow_is_started_by_nobody(engine, bank):
    with pytest.raises(InputRefused, match="is built in"):
        engine.start(owing.WORKFLOW, {"undoes": "x"})


def test_linked_run_in_doubt_about_an_undo_waits_to_be_settled(engine, bank):
    from datetime import timedelta

    @tool(safety="keyed", name="forgetful", key_window=timedelta(hours=1), retry=ONCE)
    def forgetful(call, *, downstream_id: str):
        raise RuntimeError("no answer")

    @tool(safety="keyed", name="pay", compensate=forgetful)
    def pay(call):
        return {}

    @workflow(name="payer", version=1, state=Facts)
    class Payer:
        @step
        def act(run: Any):
            run.call(pay, resource="a")
            run.approval("go on")

    run = engine.run("payer")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    one = undone(run)[0]
    assert one.state == "failed"
    IdempotencyRecord.objects.filter(tool="forgetful").update(window_ends_at=run.created_at)
    compensating.try_again(one.pk, tenant=engine.tenant, actor="bob", reason="now")
    engine.drain()
    assert (linked(run).state, states(run)) == ("in_doubt", ["running"])


def test_queued_message_is_undone_only_after_it_was_delivered(engine, bank):
    run = run_of(engine, ask=True)
    effect = make_effect(run, tool="charge", state="queued", safety="outbox", downstream_id="")
    commands.cancel(run.pk, tenant=engine.tenant, done="compensate", **WHY)
    engine.drain()
    assert (states(run), bank.order, linked(run).state) == (["approved"], [], "waiting")
    IdempotencyRecord.objects.filter(pk=effect.pk).update(state="succeeded", completed_at=run.created_at, result="{}")
    make_due(linked(run))
    engine.rounds()
    engine.drain()
    assert (states(run), len(bank.order)) == (["done"], 1)

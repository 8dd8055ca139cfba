"""Questions to people: choices and forms, who may decide, rounds, handing on; a decision is made once and is final."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from pydantic import BaseModel, Field

from durableops import Choice, Retry, State, step, workflow
from durableops.engine import commands, deciding
from durableops.errors import InputRefused, NotPermitted, PlanChanged, TransitionRefused
from durableops.upkeep import approvals
from runs.models import Approval, AuditEntry, Checkpoint, Membership, Run, RunEvent, Wait
from tests.factories import events_of, make_run, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=2, first_delay=0.0, jitter=0.0)
REVIEWER, OPERATOR, ADMIN = frozenset({"reviewer"}), frozenset({"operator"}), frozenset(deciding.EVERYBODY)


class Nothing(State):
    n: int = 0


class Payment(BaseModel):
    amount: Annotated[Decimal, Field(gt=0, le=500)]
    note: str = ""


def asks(engine, ask=None, **options) -> tuple[Run, Wait]:
    ask = ask or (lambda run: vars_of(run.approval("pay", question="Pay?", facts={"to": "ann"}, **options)))
    workflow(name="asking", version=1, state=Nothing)(type("Asking", (), {"a": step(id="a", retry=AT_ONCE)(ask)}))
    run = engine.run("asking")
    return run, Wait.objects.get(run=run)


def vars_of(answer: Any) -> list[Any]:
    values = answer.values
    return [answer.choice, None if values is None else str(getattr(values, "amount", values))]


def decide(engine, wait, **more):
    more = {"actor": "rita", "reason": "looked", "approved": True} | more
    return deciding.decide(wait.pk, tenant=engine.tenant, **more)


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


def test_question_is_a_record_with_its_terms(engine):
    run, wait = asks(engine, form=Payment, by=("operator", "reviewer"), four_eyes=True, remind=timedelta(hours=2),
                     escalate=timedelta(days=1))  # fmt: skip
    one = Approval.objects.get()
    assert (one.wait_id, one.run_id, one.round, one.roles) == (wait.pk, run.pk, 1, ["operator", "reviewer"])
    assert [field["name"] for field in one.fields] == ["amount", "note"]
    assert (one.four_eyes, one.decided_at, one.escalate_to) == (True, None, "admin")
    assert one.remind_at is not None
    assert one.escalate_at is not None
    assert one.remind_at < one.escalate_at


def test_form_is_filled_in_and_the_step_gets_it_as_its_model(engine):
    run, wait = asks(engine, form=Payment)
    decide(engine, wait, values={"amount": "12.50"}, facts_hash=wait.facts_hash)
    engine.drain()
    assert output(run) == ["approve", "12.50"]
    one = Approval.objects.get()
    assert (one.choice, one.decided_by, one.seen_hash) == ("approve", "rita", wait.facts_hash)
    entry = AuditEntry.objects.get(verb="approve")
    assert entry.after["facts_hash"] == wait.facts_hash


@pytest.mark.parametrize("values", [None, {}, {"amount": "0"}, {"amount": "1", "more": 1}])
def test_form_that_is_not_filled_in_as_it_wants_decides_nothing(engine, values):
    run, wait = asks(engine, form=Payment)
    with pytest.raises(InputRefused):
        decide(engine, wait, values=values)
    run.refresh_from_db()
    assert (run.state, Wait.objects.get().state, Approval.objects.get().decided_at) == ("waiting", "open", None)


def test_plain_question_takes_no_values(engine):
    _, wait = asks(engine)
    with pytest.raises(InputRefused, match="asked for is: nothing"):
        decide(engine, wait, values={"amount": 1})


def test_author_names_the_choices_and_a_person_can_always_say_no(engine):
    run, wait = asks(engine, choices=[Choice("now"), Choice("later", "Next week")])
    assert [one["name"] for one in Approval.objects.get().choices] == ["now", "later", "refuse"]
    with pytest.raises(InputRefused, match="say which: now, later"):
        decide(engine, wait)
    with pytest.raises(InputRefused, match="say which"):
        decide(engine, wait, approved=None, choice="never")
    decide(engine, wait, approved=None, choice="later")
    engine.drain()
    assert output(run) == ["later", None]
    assert "answered with “Next week” by rita" in RunEvent.objects.get(run=run, event="wake").reason


@pytest.mark.parametrize(
    "options",
    [
        {"choices": ["A b"]}, {"choices": ["a", "a"]}, {"choices": [Choice("no", approves=False)]}, {"by": "viewer"},
        {"by": ()}, {"escalate_to": "boss"}, {"remind": timedelta(0)}, {"escalate": 5}, {"form": list},
    ],
    ids=str,
)  # fmt: skip
def test_terms_that_make_no_sense_fail_the_step_with_a_sentence_and_ask_nobody(engine, options):
    workflow(name="asking", version=1, state=Nothing)(
        type("Asking", (), {"a": step(id="a", retry=AT_ONCE)(lambda run: run.approval("pay", **options))})
    )
    run = engine.run("asking")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert not Wait.objects.exists()


def test_no_wants_a_reason_and_asks_for_no_form(engine):
    run, wait = asks(engine, form=Payment)
    with pytest.raises(InputRefused, match="say why"):
        decide(engine, wait, approved=False, reason="  ")
    decide(engine, wait, approved=False, reason="too much")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "cancelled"


@pytest.mark.parametrize(
    ("by", "roles", "may"),
    [
        ("reviewer", REVIEWER, True), ("reviewer", OPERATOR, False), ("operator", OPERATOR, True),
        ("operator", REVIEWER, False), ("admin", REVIEWER, False), ("admin", ADMIN, True),
        (("operator", "reviewer"), OPERATOR, True), ("reviewer", frozenset(), False),
    ],
)  # fmt: skip
def test_role_that_the_author_asked_for_decides_and_no_other(engine, by, roles, may):
    _, wait = asks(engine, by=by)
    if may:
        decide(engine, wait, roles=roles)
        assert Approval.objects.get().decided_by == "rita"
        return
    with pytest.raises(NotPermitted, match="Nothing was changed"):
        decide(engine, wait, roles=roles)
    assert Wait.objects.get().state == "open"


def test_four_eyes_are_not_those_of_whoever_started_the_run_nor_of_a_run_above(engine):
    run, wait = asks(engine, four_eyes=True)
    starter = run.created_by
    with pytest.raises(NotPermitted, match="somebody else than whoever started the run"):
        decide(engine, wait, actor=starter)
    parent = make_run(state="waiting", tenant=engine.tenant, created_by="bob")
    above = make_wait(parent, kind="children", name="child")
    Run.objects.filter(pk=run.pk).update(parent=parent, parent_wait=above, child_index=0, created_by=f"run {parent.pk}")
    with pytest.raises(NotPermitted):
        decide(engine, wait, actor="bob")
    decide(engine, wait, actor="rita")


def test_rounds_are_kept_apart_by_their_key_and_a_stale_page_never_answers_a_later_one(engine):  # C047
    def a(run: Any):
        return [run.approval("pay", key=f"round {n}", on_refusal="return").approved for n in (1, 2, 3)]

    run, first = asks(engine, a)
    pages = [first]
    for number in (1, 2):
        decide(engine, pages[-1], approved=False, reason="again", facts_hash=pages[-1].facts_hash)
        engine.drain()
        pages.append(Wait.objects.get(run=run, state="open"))
        with pytest.raises(TransitionRefused, match="was answered by rita"):
            decide(engine, pages[0])
        assert Approval.objects.get(wait=pages[-1]).round == number + 1
    decide(engine, pages[-1])
    engine.drain()
    assert output(run) == [False, False, True]


def test_facts_that_changed_since_are_refused_and_the_question_is_asked_with_the_new_ones(engine):
    facts = {"total": 5}
    run, wait = asks(engine, lambda run: run.approval("pay", facts=dict(facts)).by)
    seen = wait.facts_hash
    facts["total"] = 500
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())  # as after a migration, or somebody's recheck
    engine.drain()
    wait.refresh_from_db()
    assert (wait.state, json.loads(wait.facts), wait.facts_hash == seen) == ("open", {"total": 500}, False)
    assert "facts_changed" in events_of(run)
    with pytest.raises(PlanChanged, match="the facts changed since the page was opened"):
        decide(engine, wait, facts_hash=seen)
    decide(engine, wait, facts_hash=wait.facts_hash)
    engine.drain()
    assert output(run) == "rita"


def test_question_that_is_asked_again_with_the_same_facts_stays_as_it_is(engine):
    run, wait = asks(engine, remind=timedelta(hours=1))
    before = Approval.objects.values().get()
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())
    engine.drain()
    assert Approval.objects.values().get() == before
    assert Wait.objects.get().facts_hash == wait.facts_hash


def test_answer_is_not_lost_by_a_step_that_asks_with_other_facts_meanwhile(engine):
    facts = {"total": 5}

    def a(run: Any):
        if run.entry == 2:  # it was answered just after the step had looked
            run.decide("look at the record", {}, lambda: 0)
            decide(engine, Wait.objects.get())
        return run.approval("pay", facts=dict(facts)).by

    run, _ = asks(engine, a)
    facts["total"] = 500
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())
    engine.drain()
    engine.drain()
    assert output(run) == "rita"
    assert json.loads(Wait.objects.get().facts) == {"total": 5}


def test_expired_question_cannot_be_answered(engine):
    _, wait = asks(engine, timeout=timedelta(hours=1))
    Wait.objects.update(expires_at=now() - timedelta(seconds=1))
    with pytest.raises(TransitionRefused, match="expired"):
        decide(engine, wait)


def test_decision_is_final_in_the_record_and_in_the_answer(engine):
    _, wait = asks(engine)
    decide(engine, wait)
    for change in (
        lambda: Approval.objects.update(decided_by="eve"),
        lambda: Approval.objects.update(choice="refuse"),
        lambda: Wait.objects.filter(pk=wait.pk).update(answer='{"approved":false}'),
        lambda: Wait.objects.filter(pk=wait.pk).update(state="open"),
        lambda: Wait.objects.filter(pk=wait.pk).update(answered_by="eve"),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()
    Wait.objects.filter(pk=wait.pk).update(answer=None, question="")  # as retention does


def test_question_from_before_there_were_records_is_decided_by_reviewers(engine):
    run = make_run(state="waiting", tenant=engine.tenant)
    wait = make_wait(run, kind="approval", name="old", facts_hash="f" * 64)
    with pytest.raises(NotPermitted):
        decide(engine, wait, roles=OPERATOR)
    decide(engine, wait, roles=REVIEWER)
    assert Approval.objects.get(wait=wait).decided_by == "rita"


@pytest.fixture
def cast(engine):
    for name, role in (("rita", "reviewer"), ("ron", "reviewer"), ("otto", "operator"), ("ada", "admin")):
        person = User.objects.create_user(name, password=None)
        Membership.objects.create(user=person, tenant=engine.tenant, role=role)
    return engine


def hand_to(engine, wait, to, **more):
    return deciding.delegate(wait.pk, tenant=engine.tenant, actor="rita", reason="away", to=to, **more)


def test_whoever_is_asked_by_name_decides_or_an_admin_and_nobody_else(cast):
    run, wait = asks(cast)
    hand_to(cast, wait, "ron")
    with pytest.raises(NotPermitted, match="ron, whom rita asked, or an admin"):
        decide(cast, wait, actor="rita", roles=REVIEWER)
    decide(cast, wait, actor="ron", roles=REVIEWER)
    cast.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert AuditEntry.objects.get(verb="delegate").after["delegated_to"] == "ron"


@pytest.mark.parametrize("to", ["otto", "nobody", ""])
def test_only_a_member_who_may_decide_can_be_asked_by_name(cast, to):
    _, wait = asks(cast)
    with pytest.raises(InputRefused):
        hand_to(cast, wait, to)
    assert Approval.objects.get().delegated_to == ""


def test_whoever_started_the_run_cannot_be_asked_where_four_eyes_are_wanted(cast):
    run, wait = asks(cast, four_eyes=True)
    Run.objects.filter(pk=run.pk).update(created_by="ron")
    with pytest.raises(InputRefused, match="ron started the run"):
        hand_to(cast, wait, "ron")


def test_question_that_is_passed_on_is_also_for_those_above_and_waits_for_nobody_by_name(cast):
    _, wait = asks(cast, by="operator", escalate_to="reviewer")
    hand_to(cast, wait, "otto")
    deciding.escalate(wait.pk, tenant=cast.tenant, actor="otto", reason="too large for me")
    one = Approval.objects.get()
    assert (one.delegated_to, one.escalated_by) == ("", "otto")
    assert deciding.deciders_of(one) == {"operator", "reviewer"}
    with pytest.raises(TransitionRefused, match="was not passed on before"):
        deciding.escalate(wait.pk, tenant=cast.tenant, actor="otto", reason="again")
    decide(cast, wait, roles=REVIEWER)


def test_note_is_kept_with_the_run_and_changes_nothing(engine):
    run, wait = asks(engine)
    deciding.comment(wait.pk, tenant=engine.tenant, actor="rita", reason="asked the customer")
    told = RunEvent.objects.get(run=run, event="comment")
    assert (told.actor, told.reason, told.data["wait"]) == ("rita", "asked the customer", wait.pk)
    with pytest.raises(InputRefused):
        deciding.comment(wait.pk, tenant=engine.tenant, actor="rita", reason=" ")
    decide(engine, wait)
    with pytest.raises(TransitionRefused):
        deciding.comment(wait.pk, tenant=engine.tenant, actor="rita", reason="too late")


def test_clocks_remind_and_pass_on_and_decide_nothing(engine, database):
    run, wait = asks(engine, remind=timedelta(hours=1), escalate=timedelta(hours=3))
    assert approvals.fire_clocks(database) == 0
    Approval.objects.update(remind_at=now() - timedelta(seconds=1))
    assert approvals.fire_clocks(database) == 1
    one = Approval.objects.get()
    assert one.reminders == 1
    assert one.remind_at is not None
    assert one.remind_at > now() + timedelta(minutes=59)
    told = RunEvent.objects.get(run=run, event="approval_reminder").data
    assert (told["clock"], told["cause"], told["limit_seconds"]) == ("approval", "unresponsive_user", 3600)
    Approval.objects.update(escalate_at=now() - timedelta(seconds=1))
    engine.rounds()
    one.refresh_from_db()
    assert (one.escalated_by, one.escalate_at, one.decided_at) == ("upkeep", None, None)
    assert events_of(run)[-2:] == ["approval_reminder", "approval_escalation"]
    decide(engine, wait)
    assert approvals.fire_clocks(database) == 0


def test_question_whose_run_ended_reminds_nobody(engine, database):
    run, _ = asks(engine, remind=timedelta(hours=1))
    commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
    Approval.objects.update(remind_at=now() - timedelta(seconds=1))
    assert approvals.fire_clocks(database) == 1
    assert approvals.fire_clocks(database) == 0
    assert "approval_reminder" not in events_of(run)
    assert Approval.objects.get().remind_at is None

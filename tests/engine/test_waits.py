"""Waits: opened once, answered once, found by name and key; times of polls that are sane or refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from durableops import WaitTimeout, step, tool, workflow
from durableops.engine import commands
from durableops.engine.inbound import send_event
from durableops.errors import ControlSignal, RunCancelled, Suspended, TransitionRefused
from runs.models import IdempotencyRecord, InboundEvent, Receipt, Run, RunEvent, Wait
from tests.engine.one_step import HOUR, Nothing, one_step, output, send
from tests.factories import events_of, make_due, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# Events.


def test_run_waits_for_its_event_and_goes_on_with_the_payload(engine):
    one_step(lambda run: run.wait_for("go", correlation="doc-1"))
    run = engine.run("one")
    assert run.state == "waiting"
    assert run.worker_id is None
    wait = Wait.objects.get(run=run)
    assert (wait.kind, wait.name, wait.correlation, wait.state) == ("event", "go", "doc-1", "open")
    assert send(engine, {"ok": True}, correlation="doc-1").answered == 1
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", {"ok": True})
    assert events_of(run) == ["start", "claim", "suspend", "wake", "claim", "succeed"]
    receipt = Receipt.objects.get(run=run)
    assert receipt.cause == "event"
    assert "doc-1" in receipt.detail
    assert "desk" in receipt.detail


def test_waits_consume_no_attempts(engine):
    seen = []

    def a(run: Any):
        seen.append((run.attempt, run.entry))
        run.wait_for("go", key="1")
        run.wait_for("go", key="2")

    one_step(a)
    engine.run("one")
    for _ in range(2):
        send(engine)
        engine.drain()
    assert seen == [(1, 1), (1, 2), (1, 3)]
    assert Run.objects.get().state == "succeeded"


def test_event_that_arrived_after_the_start_and_before_the_wait_answers_it(engine):  # C020
    one_step(lambda run: run.wait_for("go"))
    run = engine.start("one")
    assert send(engine, 1).answered == 0
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", 1)


def test_event_from_before_the_start_is_kept_unmatched_by_the_stated_rule(engine):  # C020
    one_step(lambda run: run.wait_for("go"))
    early = send(engine, 1)
    run = engine.run("one")
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "waiting"
    assert InboundEvent.objects.get(pk=early.event_id).answered_waits == 0


@pytest.mark.parametrize(
    ("look_back", "state"), [(timedelta(seconds=30), "waiting"), (timedelta(minutes=5), "succeeded")]
)
def test_look_back_reaches_as_far_as_it_says(engine, look_back, state):  # C020
    one_step(lambda run: run.wait_for("go", look_back=look_back))
    early = send(engine, 1)
    InboundEvent.objects.filter(pk=early.event_id).update(received_at=now() - timedelta(minutes=1))
    engine.start("one")
    engine.drain()
    engine.drain()
    assert Run.objects.get().state == state


def test_one_event_answers_a_run_once_and_a_queue_of_them_is_taken_in_order(engine):
    one_step(lambda run: [run.wait_for("go", key=str(n)) for n in range(3)])
    run = engine.start("one")
    for n in (10, 11, 12):
        send(engine, n)
    for _ in range(4):
        engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", [10, 11, 12])


def test_one_event_answers_every_run_that_asks_for_it(engine):
    one_step(lambda run: run.wait_for("go"))
    runs = [engine.run("one") for _ in range(3)]
    assert send(engine, 5).answered == 3
    engine.drain()
    assert [output(run) for run in runs] == [5, 5, 5]


def test_correlation_of_another_or_tenant_of_another_answers_nothing(engine):
    from tests.factories import make_tenant

    one_step(lambda run: run.wait_for("go", correlation="a"))
    engine.run("one")
    assert send(engine, correlation="A").answered == 0
    assert send(engine).answered == 0
    assert send_event("go", tenant=make_tenant("other"), actor="x", correlation="a").answered == 0


def test_same_name_and_key_twice_in_one_entry_fails_the_run_with_advice(engine):
    def a(run: Any):
        run.decide("read what is on record", {}, lambda: 0)
        try:
            run.wait_for("go")
        finally:
            if run.entry == 2:
                run.wait_for("go")

    one_step(a)
    run = engine.run("one")
    send(engine)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "failed"
    assert "key of its own" in run.error_message


def test_answer_is_kept_over_failed_attempts(engine):
    def a(run: Any):
        found = run.wait_for("go")
        if run.attempt == 1:
            raise ValueError("after the answer")
        return found

    one_step(a)
    run = engine.run("one")
    send(engine, 4)
    engine.drain()
    assert output(run) == 4
    assert Wait.objects.count() == 1


# Approvals.


def asks(**options):
    one_step(lambda run: run.approval("delivery", question="send?", facts={"rows": 3}, **options).by)


def test_person_approves_and_the_run_goes_on_where_it_was(engine):  # C049
    counters = {"fetch": 0, "write": 0}

    @workflow(name="fetching", version=1, state=Nothing)
    class Fetching:
        @step
        def fetch(run: Any):
            counters["fetch"] += 1

        @step
        def ask(run: Any):
            return run.approval("write", question="write?").by

        @step
        def write(run: Any):
            counters["write"] += 1

    run = engine.run("fetching")
    wait = Wait.objects.get(run=run)
    assert json.loads(wait.facts) == {}
    commands.approve(wait.pk, tenant=engine.tenant, actor="ann", facts_hash=wait.facts_hash)
    engine.another_worker().drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert counters == {"fetch": 1, "write": 1}
    assert Receipt.objects.get(run=run).cause == "approval"


def test_refusal_ends_the_run_as_cancelled_unless_the_step_wants_the_answer(engine):
    asks()
    run = engine.run("one")
    commands.refuse(Wait.objects.get().pk, tenant=engine.tenant, actor="bob", reason="not now")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert "bob" in RunEvent.objects.get(run=run, event="stop").reason


@pytest.mark.parametrize("question", ["a\0b", "\ud800", "<b>%s</b>", "x" * 100_000])
def test_question_of_any_text_can_be_asked(engine, question):
    one_step(lambda run: run.approval("delivery", question=question).by)
    run = engine.run("one")
    assert run.state == "waiting", run.error_message
    commands.approve(Wait.objects.get().pk, tenant=engine.tenant, actor="ann")
    engine.drain()
    assert output(run) == "ann"


def test_refusal_can_be_returned(engine):
    asks(on_refusal="return")
    run = engine.run("one")
    commands.refuse(Wait.objects.get().pk, tenant=engine.tenant, actor="bob", reason="not now")
    engine.drain()
    assert output(run) == "bob"


def test_decision_about_other_facts_is_refused(engine):  # C047
    asks()
    engine.run("one")
    with pytest.raises(TransitionRefused, match="facts changed"):
        commands.approve(Wait.objects.get().pk, tenant=engine.tenant, actor="ann", facts_hash="0" * 64)
    assert Wait.objects.get().state == "open"


@pytest.mark.parametrize("swallowed", [BaseException, Suspended, ControlSignal])
def test_step_that_swallows_the_signal_still_waits_for_its_approval(engine, swallowed):  # C050
    """A broad handler must not skip a person."""

    def a(run: Any):
        try:  # noqa: SIM105 - as people write it
            run.approval("delivery")
        except swallowed:
            pass
        return "delivered"

    one_step(a)
    run = engine.run("one")
    assert run.state == "waiting"
    commands.approve(Wait.objects.get().pk, tenant=engine.tenant, actor="ann")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "delivered")


def test_step_that_swallows_the_signal_can_do_nothing_more_in_this_entry(engine):
    sent = []

    @tool(safety="keyed", name="send")
    def send_it(call):
        sent.append(call.key)

    def a(run: Any):
        try:
            run.approval("delivery")
        except BaseException:
            run.call(send_it, resource="x")

    one_step(a)
    run = engine.run("one")
    assert run.state == "waiting"
    assert sent == []
    assert not IdempotencyRecord.objects.exists()


def test_refused_approval_that_is_swallowed_still_ends_the_run(engine):
    def a(run: Any):
        try:  # noqa: SIM105
            run.approval("delivery")
        except RunCancelled:
            pass
        return "delivered"

    one_step(a)
    run = engine.run("one")
    commands.refuse(Wait.objects.get().pk, tenant=engine.tenant, actor="bob", reason="no")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "cancelled"


# Polls.


def test_poll_takes_turns_each_with_a_record_of_its_own_until_one_satisfies(engine):
    turns = []

    @tool(safety="read", name="status")
    def status(call, *, job: str):
        turns.append(job)
        return {"done": len(turns) == 3}

    one_step(lambda run: run.poll(status, every=HOUR, until=lambda found: found["done"], job="j"))
    run = engine.run("one")
    assert (run.state, len(turns)) == ("waiting", 1)
    for _ in range(2):
        run = engine.go_on(run)
    assert (run.state, output(run)) == ("succeeded", {"done": True})
    assert len(turns) == 3
    assert IdempotencyRecord.objects.filter(run=run, tool="status").count() == 3
    assert run.step_attempts == 0


def test_poll_that_takes_too_long_expires(engine):
    @tool(safety="read", name="status")
    def status(call):
        return False

    def a(run: Any):
        try:
            run.poll(status, every=HOUR, until=bool, timeout=timedelta(hours=3))
        except WaitTimeout:
            return "late"

    one_step(a)
    run = engine.run("one")
    Wait.objects.update(expires_at=now() - timedelta(seconds=1))
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "late")


@pytest.mark.parametrize("every", [timedelta(0), timedelta(seconds=-1)])
def test_poll_without_a_pause_is_refused(engine, every):
    @tool(safety="read", name="status")
    def status(call):
        return False

    one_step(lambda run: run.poll(status, every=every, until=bool))
    assert engine.run("one").state == "failed"


@pytest.mark.parametrize("name", ["", "x" * 10_000, "a\0b", "a\nb", "\ud800"], ids=repr)
@pytest.mark.parametrize("what", ["wait_for", "approval", "key"])
def test_name_or_key_that_cannot_be_one_fails_the_step_with_a_sentence(engine, what, name):
    def a(run: Any):
        if what == "key":
            run.wait_for("go", key=name or " ")
        else:
            getattr(run, what)(name)

    one_step(a)
    run = engine.run("one")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert not Wait.objects.exists()


def test_paused_run_that_is_woken_stays_where_it_is_until_it_is_resumed(engine):
    one_step(lambda run: run.wait_for("go"))
    run = engine.run("one")
    commands.pause(run.pk, tenant=engine.tenant, actor="ann", reason="look")
    send(engine, 1)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.paused) == ("queued", True)
    commands.resume(run.pk, tenant=engine.tenant, actor="ann", reason="fine")
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"


def test_wait_of_a_finished_run_is_closed(engine):
    one_step(lambda run: run.wait_for("go"))
    run = engine.run("one")
    commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
    assert Wait.objects.get().state == "cancelled"
    assert send(engine, 1).answered == 0
    make_due(run)
    engine.rounds()
    run.refresh_from_db()
    assert run.state == "cancelled"

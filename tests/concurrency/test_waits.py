"""Answers that race a run on its way to wait, clocks that race answers, children that finish together."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from durableops import State, WaitTimeout, step, workflow
from durableops.engine import commands
from durableops.engine.database import Database
from durableops.engine.inbound import send_event
from durableops.errors import TransitionRefused
from durableops.upkeep import timers
from runs.models import AuditEntry, Checkpoint, InboundEvent, Run, RunEvent, Wait
from tests.factories import events_of, make_due, make_run, make_wait, now
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    n: int = 0


def declare_waiter(**options: Any):
    @workflow(name="waiter", version=1, state=Nothing)
    class Waiter:
        @step
        def a(run: Any):
            return run.wait_for("go", correlation="doc-42", **options)


def output(run: Run) -> str | None:
    return Checkpoint.objects.get(run=run, kind="finish").output


def test_event_sent_while_the_wait_is_being_opened_is_not_missed(engine, second):  # C020
    """The sender stands between the run's suspend and its commit: one waits for the other, neither misses."""
    declare_waiter()
    run = engine.start("waiter")
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk]):
        # The claim skips a locked row: the run is not even taken yet.
        assert engine.drain() == 0
        assert send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=1).answered == 0
    engine.drain()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "1")


def test_sender_that_holds_the_lock_first_makes_the_opening_of_the_wait_see_its_event(engine, second):  # C020
    declare_waiter()
    run = engine.start("waiter")
    with second.transaction():
        second.execute("SELECT pg_advisory_xact_lock(%s)", [event_lock(engine.tenant.pk, "go", "doc-42")])
        worker = Background(engine.worker.drain)
        until_blocked()
        second.execute(
            "INSERT INTO runs_inbound_event (tenant_id, name, correlation, payload, payload_hash, sent_by, received_at,"
            " answered_waits, duplicates) VALUES (%s, 'go', 'doc-42', '\"late\"', 'h', 'x', now(), 0, 0)",
            [engine.tenant.pk],
        )
    worker.result()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", '"late"')


def event_lock(tenant_id: int, name: str, correlation: str) -> int:
    """The key of the lock, asked of the code itself."""
    from durableops.engine import inbound

    seen = []

    class Listening:
        def execute(self, query, params):
            seen.append(params[0])

    inbound.lock(Listening(), tenant_id=tenant_id, name=name, correlation=correlation)  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize("moment", ["before the start", "queued", "waiting", "finished"])
def test_every_signal_has_a_definite_answer(engine, moment):  # C020 C022
    declare_waiter(look_back=timedelta(minutes=5))
    if moment == "before the start":
        sent = send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=1)
        run = engine.start("waiter")
    else:
        run = engine.start("waiter")
        if moment != "queued":
            engine.drain()
        if moment == "finished":
            send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=1)
            engine.drain()
        sent = send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=2)
    engine.drain()
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    event = InboundEvent.objects.get(pk=sent.event_id)
    # Kept and visible as unmatched, not lost, where the run had no more need of it.
    assert event.answered_waits == (0 if moment == "finished" else 1)


def test_twenty_signals_around_the_end_of_a_run_are_each_consumed_or_kept(engine):  # C022
    @workflow(name="loop", version=1, state=Nothing)
    class Loop:
        @step
        def a(run: Any):
            return [run.wait_for("go", correlation="doc-42", key=str(n)) for n in range(8)]

    run = engine.start("loop")
    ready = threading.Barrier(3)

    def send(numbers):
        ready.wait(10)
        for n in numbers:
            send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=n)

    senders = [Background(partial(send, numbers)) for numbers in (range(10), range(10, 20))]
    worker = engine.another_worker()

    def work():
        ready.wait(10)
        while Run.objects.get(pk=run.pk).state != "succeeded":
            worker.drain()
            engine.rounds()

    Background(work).result(60)
    for sender in senders:
        sender.result()

    run.refresh_from_db()
    consumed = Wait.objects.filter(run=run, state="answered").values_list("inbound_event_id", flat=True)
    assert len(set(consumed)) == 8
    assert InboundEvent.objects.count() == 20
    assert InboundEvent.objects.filter(answered_waits=1).count() == 8
    assert InboundEvent.objects.filter(answered_waits=0).count() == 12


def test_answer_that_waits_for_a_run_on_its_way_to_wait_wakes_it(engine, second):
    """Answer and suspend both lock the run's row first: whoever comes second sees what the first did."""
    run = make_run(state="waiting", tenant=engine.tenant)
    make_wait(run, correlation="doc-42")
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk]):
        sender = Background(lambda: send_event("go", tenant=engine.tenant, actor="x", correlation="doc-42", payload=3))
        until_blocked()
    assert sender.result().answered == 1
    run.refresh_from_db()
    assert run.state == "queued"
    assert Wait.objects.get(run=run).answer == "3"


def test_answer_given_while_the_run_still_runs_is_found_when_it_suspends(engine):
    """A poll or sleep is opened anew by a run in hand; its answer may come before it rests."""
    entries = []

    @workflow(name="again", version=1, state=Nothing)
    class Again:
        @step
        def a(run: Any):
            entries.append(run.entry)
            run.decide("what is on record is read here", {}, lambda: 1)
            if run.entry == 2:
                # Between finding the wait open and suspending on it again, the event arrives.
                Background(lambda: send_event("go", tenant=engine.tenant, actor="x", payload=9)).result()
            return run.wait_for("go", key="k")

    run = engine.run("again")
    Run.objects.filter(pk=run.pk).update(state="queued", due_at=now())
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "9")
    assert entries == [1, 2, 3]


# Clocks.


@pytest.mark.parametrize("policy", ["raise", "continue", "cancel", "fail"])
def test_answer_that_beats_the_clock_is_the_only_thing_that_happened(engine, second, policy):
    """The clock looks, finds the wait expired, and then has to wait for the answer to commit."""
    run = make_run(state="waiting", tenant=engine.tenant)
    wait = make_wait(run, on_timeout=policy, expires_at=now() - timedelta(seconds=1))
    database = Database(name="timers")
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        clock = Background(lambda: timers.expire_waits(database))
        until_blocked()
        second.execute(
            "UPDATE runs_wait SET state = 'answered', answer = '1', answered_at = now() WHERE id = %s", [wait.pk]
        )
        second.execute("UPDATE runs_run SET state = 'queued', due_at = now() WHERE id = %s", [run.pk])
    clock.result()
    database.close()
    run.refresh_from_db()
    wait.refresh_from_db()
    assert run.state == "queued"
    assert (wait.state, wait.answer) == ("answered", "1")
    assert events_of(run) == []


@pytest.mark.parametrize("policy", ["cancel", "fail"])
def test_clock_of_an_answered_wait_never_ends_a_run_that_waits_for_the_next_thing(engine, second, policy):
    run = make_run(state="waiting", tenant=engine.tenant)
    wait = make_wait(run, on_timeout=policy, expires_at=now() - timedelta(seconds=1))
    database = Database(name="timers")
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        clock = Background(lambda: timers.expire_waits(database))
        until_blocked()
        # Answered, woken, gone on, and waiting again: all before the clock gets the row.
        second.execute("UPDATE runs_wait SET state = 'answered', answered_at = now() WHERE id = %s", [wait.pk])
        second.execute("UPDATE runs_run SET wake_cause = 'event' WHERE id = %s", [run.pk])
    clock.result()
    database.close()
    run.refresh_from_db()
    wait.refresh_from_db()
    assert run.state == "waiting"
    assert wait.state == "answered"
    assert events_of(run) == []


def test_event_that_comes_after_the_clock_finds_the_wait_closed(engine):
    @workflow(name="waiter", version=1, state=Nothing)
    class Waiter:
        @step
        def a(run: Any):
            try:
                return run.wait_for("go", timeout=timedelta(hours=1))
            except WaitTimeout:
                return "timed out"

    run = engine.run("waiter")
    make_due(run)
    engine.rounds()
    assert send_event("go", tenant=engine.tenant, actor="x").answered == 0
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", '"timed out"')


# People.


def declare_approval():
    @workflow(name="asks", version=1, state=Nothing)
    class Asks:
        @step
        def a(run: Any):
            return run.approval("delivery", question="send?", facts={"rows": 3}, on_refusal="return").approved


@pytest.mark.parametrize("second_verb", ["approve", "refuse"])
def test_of_two_people_who_decide_at_once_one_wins_and_the_other_hears_who(engine, second, second_verb):  # C046
    declare_approval()
    run = engine.run("asks")
    wait = Wait.objects.get(run=run)

    def decide(verb, actor):
        return getattr(commands, verb)(wait.pk, tenant=engine.tenant, actor=actor, reason="because")

    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk]):
        works = [Background(lambda: decide("approve", "ann")), Background(lambda: decide(second_verb, "bob"))]
        until_blocked(count=2)
    for work in works:
        work.join(20)
    refused = [work.error for work in works if work.error is not None]

    assert len(refused) == 1
    assert isinstance(refused[0], TransitionRefused)
    winner = Wait.objects.get(pk=wait.pk).answered_by
    assert winner in str(refused[0])
    assert AuditEntry.objects.filter(verb__in=["approve", "refuse"]).count() == 1
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert events_of(run).count("wake") == 1


def test_old_page_cannot_answer_a_later_question(engine):  # C047
    @workflow(name="asks-twice", version=1, state=Nothing)
    class AsksTwice:
        @step
        def a(run: Any):
            run.approval("first", question="really?")
            return run.approval("second", question="delete the data?").approved

    run = engine.run("asks-twice")
    first = Wait.objects.get(run=run, name="first")
    commands.approve(first.pk, tenant=engine.tenant, actor="tab b")
    engine.drain()
    with pytest.raises(TransitionRefused, match="tab b"):
        commands.approve(first.pk, tenant=engine.tenant, actor="tab a", facts_hash=first.facts_hash)
    run.refresh_from_db()
    assert run.state == "waiting"
    assert Wait.objects.get(run=run, name="second").state == "open"


# Cancel.


def test_cancel_and_finish_never_disagree(engine):  # C013
    """Both are asked for at the same instant, forty times: whoever is told "accepted" sees a cancelled run."""

    @workflow(name="short", version=1, state=Nothing)
    class Short:
        @step
        def a(run: Any):
            entered.wait(10)

    entered = threading.Barrier(2)
    told = {"accepted": 0, "refused": 0}
    for n in range(40):
        run = engine.start("short")
        worker = Background(engine.worker.drain)
        entered.wait(10)
        if n % 2:
            worker.join(0.0004 * (n % 11))
        try:
            commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="stop")
            accepted = True
        except TransitionRefused as refused:
            assert "succeeded" in str(refused)  # noqa: PT017
            accepted = False
        worker.result()
        run.refresh_from_db()
        assert run.state == ("cancelled" if accepted else "succeeded")
        assert AuditEntry.objects.filter(target_id=str(run.pk), verb="cancel").exists() == accepted
        told["accepted" if accepted else "refused"] += 1
        entered.reset()
    assert sum(told.values()) == 40


def test_cancel_that_is_accepted_just_before_the_finish_commits_wins(engine, second):  # C013
    @workflow(name="short", version=1, state=Nothing)
    class Short:
        @step
        def a(run: Any):
            begun.set()
            assert go_on.wait(20)

    begun, go_on = threading.Event(), threading.Event()
    run = engine.start("short")
    worker = Background(engine.worker.drain)
    assert begun.wait(20)
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
        go_on.set()
        until_blocked()
        second.execute("UPDATE runs_run SET cancel_requested = true WHERE id = %s", [run.pk])
    worker.result()
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert events_of(run)[-1] == "stop"
    # What the step did is kept: it had happened.
    assert run.head_seq == 1


# Children.


def test_two_last_children_that_finish_together_wake_their_parent_once(engine):
    ready = threading.Barrier(2)

    @workflow(name="kid", version=1, state=Nothing)
    class Kid:
        @step
        def a(run: Any):
            ready.wait(20)
            return run.state.n

    @workflow(name="parent", version=1, state=Nothing)
    class Parent:
        @step
        def a(run: Any):
            return [child.result for child in run.children("kid", [{"n": 1}, {"n": 2}])]

    run = engine.start("parent")
    other = engine.another_worker()

    # Both look again until the end: while one is in a child, nobody but the other can take the second.
    def until_the_end(worker: Any):
        while Run.objects.get(pk=run.pk).state not in ("succeeded", "failed"):
            worker.drain()

    works = [Background(partial(until_the_end, worker)) for worker in (engine.worker, other)]
    for work in works:
        work.result(30)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", "[1,2]")
    assert RunEvent.objects.filter(run=run, event="wake").count() == 1

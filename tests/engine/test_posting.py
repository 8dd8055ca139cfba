"""Posting: a message is committed with the step's commit or not at all, once, and a conflict is found before it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from durableops import EffectConflict, Page, Retry, State, step, tool, workflow
from durableops.effects.idempotency import prepare
from durableops.engine import commands, commit, posting
from runs.models import Checkpoint, IdempotencyRecord, OutboxBody, OutboxLane, OutboxMessage, Receipt, Run, RunEvent
from tests.factories import events_of, make_run
from tests.fixtures.engine import Background, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Facts(State):
    n: int = 0


def mail(**options: Any):
    values: dict[str, Any] = {"safety": "outbox", "name": "mail"} | options

    @tool(**values)
    def send(call, *, text: str = ""):
        raise AssertionError("the step's process sends nothing")

    return send


def one_step(function, *, name="one", retry=AT_ONCE, **options):
    workflow(name=name, version=1, state=Facts, **options)(type("One", (), {"a": step(id="a", retry=retry)(function)}))


def effects(run: Run) -> list[IdempotencyRecord]:
    return list(IdempotencyRecord.objects.filter(run=run).order_by("id"))


def resources(run: Run) -> list[str]:
    return list(OutboxMessage.objects.filter(lane__run=run).order_by("id").values_list("effect__resource", flat=True))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


# What a call leaves behind.


def test_call_costs_no_commit_of_its_own_and_leaves_effect_message_body_and_lane(engine, commits):
    send = mail(deliver_within=timedelta(hours=1), on_poison="skip", destination="post-office")
    one_step(lambda run: run.call(send, resource="r1", text="hello"))
    run = engine.run("one")
    assert run.state == "succeeded"
    assert commits.count == 1
    [effect] = effects(run)
    assert (effect.safety, effect.state, effect.attempts, effect.completed_at) == ("outbox", "queued", 0, None)
    assert output(run) == {"message": effect.key, "queued": True}
    message = OutboxMessage.objects.get(effect=effect)
    assert (message.state, message.attempts, message.sendings, message.on_poison) == ("pending", 0, 0, "skip")
    assert message.deliver_before == message.created_at + timedelta(hours=1)
    assert json.loads(OutboxBody.objects.get(effect=effect).body or "") == {"text": "hello"}
    lane = OutboxLane.objects.get(run=run)
    assert (lane.destination, lane.depth, lane.claim, lane.relay_id) == ("post-office", 1, 0, None)


def test_checkpoint_covers_the_effects_of_messages_posted_with_it(engine):
    send = mail()
    one_step(lambda run: run.call(send, resource="r1"))
    run = engine.run("one")
    assert Checkpoint.objects.get(run=run, kind="finish").effects_through == effects(run)[0].id


def test_messages_of_a_run_to_one_destination_share_a_lane_in_the_order_of_the_calls(engine):
    send, other = mail(), mail(name="other")

    def body(run):
        run.call(send, resource="b")
        run.call(other, resource="x")
        run.call_many(send, [{"resource": "a"}, {"resource": "c"}])

    one_step(body)
    run = engine.run("one")
    assert sorted(OutboxLane.objects.filter(run=run).values_list("destination", "depth")) == [("mail", 3), ("other", 1)]
    assert resources(run) == ["b", "x", "a", "c"]


def test_later_steps_add_to_the_lane(engine):
    send = mail()

    @workflow(name="two", version=1, state=Facts)
    class Two:
        @step
        def a(run: Any) -> None:
            run.call(send, resource="r1")

        @step
        def b(run: Any) -> None:
            run.call(send, resource="r1", text="again, from another step")

    run = engine.run("two")
    assert run.state == "succeeded"
    assert OutboxLane.objects.get(run=run).depth == 2


# With the commit or not at all.


def test_step_that_fails_leaves_no_message(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1")
        raise ValueError

    one_step(body, retry=Retry(max_attempts=1))
    run = engine.run("one")
    assert run.state == "failed"
    assert effects(run) == []
    assert OutboxLane.objects.count() == 0


def test_step_that_fails_once_posts_once(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1")
        if run.attempt == 1:
            raise ValueError

    one_step(body)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert resources(run) == ["r1"]


def test_step_that_waits_posts_before_it_waits_and_answers_from_the_record_afterwards(engine):
    send = mail()
    seen = []

    def body(run):
        seen.append(run.call(send, resource="r1", text="please decide"))
        run.sleep(60)
        return seen[-1]

    one_step(body)
    run = engine.run("one")
    assert run.state == "waiting"
    assert resources(run) == ["r1"]
    run = engine.go_on(run)
    assert run.state == "succeeded"
    assert seen[0] == seen[1] == output(run)
    assert resources(run) == ["r1"]
    assert effects(run)[0].reused == 1
    assert Receipt.objects.get(run=run).reused_effects == 1


def test_message_travels_with_the_intent_of_a_later_call(engine, commits):
    send = mail()

    @tool(safety="keyed", name="charge")
    def charge(call):
        assert resources(Run.objects.get()) == ["r1"]
        return 1

    def body(run):
        run.call(send, resource="r1")
        run.call(charge, resource="r1")

    one_step(body)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert commits.count == 2


def test_worker_lost_before_its_commit_leaves_no_message_and_the_next_one_posts_it_once(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1")
        if run.attempt == 1:
            engine.lose_worker()

    one_step(body)
    run = engine.start("one")
    first = engine.worker
    first.drain()
    assert effects(run) == []
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert resources(run) == ["r1"]
    assert "late_result_rejected" in events_of(run)


def test_run_that_was_asked_to_stop_posts_nothing_more(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1")
        if run.workflow == "one":
            commands.cancel(run_id, tenant=engine.tenant, actor="ann", reason="stop")
            run.sleep(60)

    one_step(body)
    run = engine.start("one")
    run_id = run.pk
    engine.drain()
    run.refresh_from_db()
    assert run.state == "cancelled"
    assert effects(run) == []
    assert OutboxMessage.objects.count() == OutboxLane.objects.count() == 0


def test_code_that_catches_a_failed_commit_loses_no_message(engine, monkeypatch):
    """It believes its message posted and goes on; the next commit posts it."""
    send, real = mail(), commit._once
    failures = [errors.DataException("the database refused it")]

    def once(*args, **more):
        if failures:
            raise failures.pop()
        return real(*args, **more)

    def body(run):
        run.call(send, resource="r1")
        with pytest.raises(errors.DataException):
            run.decide("something", {}, lambda: 1)

    one_step(body)
    run = engine.start("one")
    monkeypatch.setattr(commit, "_once", once)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert resources(run) == ["r1"]


def test_many_messages_get_commits_of_their_own(engine, commits, monkeypatch):
    monkeypatch.setattr(posting, "MOST_MESSAGES", 10)
    send = mail()
    one_step(lambda run: len(run.call_many(send, [{"resource": str(n)} for n in range(25)])))
    run = engine.run("one")
    assert output(run) == 25
    assert commits.count == 3
    assert OutboxLane.objects.get(run=run).depth == 25
    assert resources(run) == [str(n) for n in range(25)]


# Once.


def test_pages_post_with_their_cursor_and_a_repeated_page_posts_nothing_twice(engine):
    send = mail()

    def read(cursor):
        return Page(items=[cursor], next_cursor=cursor + 1 if cursor < 3 else None)

    def body(run):
        for items in run.pages(read, start=1):
            run.call_many(send, [{"resource": str(n)} for n in items])
            if items == [2] and run.attempt == 1:
                raise ValueError

    one_step(body)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert resources(run) == ["1", "2", "3"]


def test_resource_of_an_earlier_page_is_a_duplicate_name(engine):
    send = mail()

    def body(run):
        for _ in run.pages(lambda cursor: Page(items=[1], next_cursor=cursor + 1 if cursor < 2 else None), start=1):
            run.call(send, resource="same")

    one_step(body)
    run = engine.run("one")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.DuplicateName"
    assert resources(run) == ["same"]


def test_same_resource_twice_in_one_entry_is_a_duplicate_name(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1")
        run.call(send, resource="r1")

    one_step(body)
    run = engine.run("one")
    assert run.error_class == "durableops.errors.DuplicateName"
    assert effects(run) == []


def test_tenant_wide_message_is_posted_by_the_first_run_and_reused_by_the_others(engine):
    send = mail(scope="tenant")
    one_step(lambda run: run.call(send, resource="order-7"))
    first, second = engine.run("one"), engine.run("one")
    assert output(first) == output(second)
    assert (resources(first), resources(second)) == (["order-7"], [])
    assert effects(first)[0].reused == 1


# Conflicts.


def test_changed_request_of_a_waiting_step_is_a_conflict_and_nothing_is_posted(engine):
    send = mail()

    def body(run):
        run.call(send, resource="r1", text=f"entry {run.entry}")
        run.sleep(60)

    one_step(body)
    run = engine.go_on(engine.run("one"))
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.EffectConflict"
    assert "effect_conflict" in events_of(run)
    assert OutboxMessage.objects.count() == 1


def test_other_request_of_another_run_is_a_conflict_before_the_commit(engine, commits):
    send = mail(scope="tenant")
    one_step(lambda run: run.call(send, resource="order-7", text=run.workflow))
    one_step(lambda run: run.call(send, resource="order-7", text=run.workflow), name="two")
    engine.run("one")
    run = engine.run("two")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.EffectConflict"
    assert [row.event for row in RunEvent.objects.filter(run=run, event="effect_conflict")] == ["effect_conflict"]
    assert commits.transitions[-1] == "fail"
    assert OutboxMessage.objects.count() == 1


def taken_meanwhile(engine, second, *, text: str) -> Run:
    """Run the step whose slot another run takes between its look and its commit, with a request of its own."""
    send = mail(scope="tenant")
    one_step(lambda run: run.call(send, resource="order-7", text="ours"))
    other = make_run(tenant=engine.tenant)
    theirs = prepare(send, {"text": text}, run_id=other.pk, tenant_id=engine.tenant.pk, step_id="x",
                     resource="order-7", author_key="", max_bytes=1000)  # fmt: skip
    run = engine.start("one")
    with second.transaction():
        second.execute(_TAKE_SLOT, [other.pk, engine.tenant.pk, bytes.fromhex(theirs.slot), theirs.key,
                                    theirs.request_hash])  # fmt: skip
        moving = Background(engine.drain)
        until_blocked()
    moving.result()
    run.refresh_from_db()
    return run


_TAKE_SLOT = """
INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
    author_key, safety, scope, state, attempts, reused, fence, intended_at, downstream_id, error_class, error_message)
VALUES (%s, %s, %s, %s, %s, '{}', 'x', 'mail', 'order-7', '', 'outbox', 'tenant', 'queued', 0, 0, 1, now(), '', '',
    '')"""


def test_conflict_that_only_the_commit_can_see_refuses_the_whole_write(engine, second):
    run = taken_meanwhile(engine, second, text="theirs")
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.EffectConflict"
    assert "effect_conflict" in events_of(run)
    assert not Checkpoint.objects.filter(run=run, kind="finish").exists()
    assert OutboxMessage.objects.count() == 0


def test_same_request_that_another_run_commits_first_is_shared(engine, second):
    run = taken_meanwhile(engine, second, text="ours")
    assert run.state == "succeeded"
    assert output(run)["message"] == IdempotencyRecord.objects.get().key
    assert OutboxMessage.objects.count() == 0


def test_conflict_is_an_ordinary_error_in_the_step(engine):
    send = mail(scope="tenant")
    caught = []

    def body(run):
        try:
            run.call(send, resource="order-7", text=run.workflow)
        except EffectConflict as conflict:
            caught.append(conflict.context["effect"])

    one_step(body)
    one_step(body, name="two")
    first = engine.run("one")
    run = engine.run("two")
    assert run.state == "succeeded"
    assert caught == [effects(first)[0].id]


# Misuse.


def test_poll_of_an_outbox_tool_is_refused(engine):
    send = mail()
    one_step(lambda run: run.poll(send, every=timedelta(seconds=1), until=bool, resource="r1"))
    run = engine.run("one")
    assert run.state == "failed"
    assert "nothing to poll for" in run.error_message

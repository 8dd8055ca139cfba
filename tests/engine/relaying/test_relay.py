"""Relaying: at least once, in the order of the lane, under the lane's claim, and never delivered without an answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from durableops import Fatal, NotSent, Refused, Retry, RetryLater
from durableops.engine import commands
from runs.models import IdempotencyRecord, OutboxBody, OutboxLane, OutboxMessage, RunEvent
from tests.engine.relaying.conftest import Receiver, declare, first_message, let_lanes_be_due, states
from tests.factories import events_of, now
from tests.fixtures.engine import Background

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


# Delivered.


def test_message_is_delivered_with_its_key_and_its_effect_succeeds(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    effect = IdempotencyRecord.objects.get()
    assert receiver.got == [(str(run.pk), "a", effect.key, 1)]
    assert (effect.state, effect.attempts, effect.downstream_id, effect.result) == (
        "succeeded", 1, "T-a", '{"id":"T-a"}',
    )  # fmt: skip
    message = OutboxMessage.objects.get()
    assert (message.state, message.attempts, message.sendings) == ("delivered", 1, 1)
    lane = OutboxLane.objects.get()
    assert (lane.depth, lane.relay_id, lane.claim) == (0, None, 1)
    assert OutboxBody.objects.get().open_messages == 0


def test_lane_is_delivered_in_the_order_of_the_calls(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    engine.run("post-mail", {"messages": list("cabfed")})
    make_relay().drain()
    assert receiver.resources == list("cabfed")


def test_messages_of_a_cancelled_run_are_delivered_all_the_same(engine, make_relay):
    from durableops import State, step, tool, workflow

    receiver = Receiver()

    @tool(safety="outbox", name="mail")
    def mail(call):
        return receiver.answer(call)

    class Facts(State):
        n: int = 0

    @workflow(name="waits", version=1, state=Facts)
    class Waits:
        @step
        def a(run: Any) -> None:
            run.call(mail, resource="a")
            run.sleep(3600)

    run = engine.run("waits")
    commands.cancel(run.pk, tenant=engine.tenant, actor="ann", reason="no more")
    make_relay().drain()
    assert receiver.resources == ["a"]
    assert states(run) == ["delivered"]


def test_four_relays_deliver_each_message_once_and_each_lane_in_order(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    runs = [engine.start("post-mail", {"messages": [str(n) for n in range(12)]}) for _ in range(8)]
    engine.drain()
    relays = [make_relay() for _ in range(4)]
    work = [Background(relay.drain) for relay in relays]
    for each in work:
        each.result(60)
    # The last one may have found what the others were at.
    relays[0].drain()
    assert len(receiver.got) == 96
    for run in runs:
        assert [r for run_id, r, _, _ in receiver.got if run_id == str(run.pk)] == [str(n) for n in range(12)]
    assert not RunEvent.objects.filter(event="effects_repeated").exists()


# Not delivered.


def answered(status: int, **headers: str) -> Any:
    def raise_for_it() -> BaseException:
        response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "https://crm.example/x?k=s"))
        return httpx.HTTPStatusError(f"status {status} of {response.url}", request=response.request, response=response)

    return raise_for_it


@pytest.mark.parametrize(
    "failure",
    [
        answered(500),
        answered(302),
        httpx.ReadTimeout("slow"),
        NotSent("no connection"),
        ValueError("a bug"),
        SystemExit(),
    ],
    ids=["500", "302", "timeout", "no connection", "bug", "exit"],
)
def test_no_failure_counts_as_delivered_and_it_is_tried_again_later(engine, make_relay, failure):  # C041
    receiver = Receiver(failure)
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    relay.drain()
    assert receiver.resources == ["a"]
    assert states(run) == ["pending", "pending"]
    lane = OutboxLane.objects.get()
    assert lane.depth == 2
    assert 50 < (lane.due_at - now()).total_seconds() < 70
    assert first_message().error_message
    let_lanes_be_due()
    relay.drain()
    assert receiver.resources == ["a", "a", "b"]
    assert states(run) == ["delivered", "delivered"]


@pytest.mark.parametrize("refusal", [Refused("404: no such route"), Fatal("never")], ids=["refused", "fatal"])
def test_definite_refusal_is_poison_at_once_and_holds_its_lane(engine, make_relay, refusal):
    receiver = Receiver(refusal)
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    relay.drain()
    let_lanes_be_due()
    relay.drain()
    assert receiver.resources == ["a"]
    assert states(run) == ["poisoned", "pending"]
    lane, message = OutboxLane.objects.get(), first_message()
    assert (lane.held_by, lane.depth, lane.relay_id) == (message.pk, 2, None)
    assert message.effect.state == "queued"
    assert str(refusal) in message.effect.error_message
    event = RunEvent.objects.get(run=run, event="message_poisoned")
    assert event.data["message"] == message.pk
    assert event.data["holds_its_lane"] is True


def test_poison_that_may_be_skipped_lets_those_behind_it_go(engine, make_relay):
    receiver = Receiver(Refused("no"))
    declare(receiver, on_poison="skip")
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    make_relay().drain()
    assert receiver.resources == ["a", "b"]
    assert states(run) == ["poisoned", "delivered"]
    lane = OutboxLane.objects.get()
    assert (lane.held_by, lane.depth) == (None, 0)


def test_last_attempt_that_fails_makes_poison(engine, make_relay):
    receiver = Receiver(answered(500), answered(500))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    let_lanes_be_due()
    relay.drain()
    assert states(run) == ["poisoned"]
    assert [attempt for *_, attempt in receiver.got] == [1, 2]
    assert IdempotencyRecord.objects.get().attempts == 2


def test_errors_are_kept_without_credentials_and_without_what_follows_the_host(engine, make_relay):  # C146
    receiver = Receiver(
        ValueError("POST https://ann:pw@hooks.example/T000/SECRET?token=abc said Bearer abcdefgh, password=hunter22")
    )
    declare(receiver, retry=Retry(max_attempts=1))
    run = engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    kept = [OutboxMessage.objects.get().error_message, IdempotencyRecord.objects.get().error_message]
    kept += [event.reason for event in RunEvent.objects.filter(run=run, event="message_poisoned")]
    for text in kept:
        assert "https://hooks.example/…" in text
        for secret in ("SECRET", "pw@", "abcdefgh", "hunter22", "token=abc"):
            assert secret not in text


# Repeats.


def test_repeat_keeps_its_key_and_is_told_with_its_reason(engine, make_relay):
    receiver = Receiver(answered(500))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    let_lanes_be_due()
    relay.drain()
    (_, _, first, _), (_, _, second, attempt) = receiver.got
    assert first == second
    assert attempt == 2
    event = RunEvent.objects.get(run=run, event="effects_repeated")
    assert event.data["effects"] == [IdempotencyRecord.objects.get().pk]
    assert "500" in event.reason
    assert IdempotencyRecord.objects.get().attempts == 2


def test_message_that_certainly_never_left_is_no_repeat(engine, make_relay):
    receiver = Receiver(NotSent("no connection"))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    let_lanes_be_due()
    relay.drain()
    assert states(run) == ["delivered"]
    assert "effects_repeated" not in events_of(run)
    message = OutboxMessage.objects.get()
    assert (message.attempts, message.sendings) == (2, 1)


def test_retry_after_is_believed_up_to_its_cap(engine, make_relay):
    receiver = Receiver(RetryLater(999_999))
    declare(receiver, retry=Retry(max_attempts=3, first_delay=1.0))
    engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    assert 50 < (OutboxLane.objects.get().due_at - now()).total_seconds() < 61


# Its time, its tool.


def test_message_whose_time_has_passed_is_poison_and_never_sent(engine, make_relay):
    receiver = Receiver()
    declare(receiver, deliver_within=timedelta(hours=1), on_poison="skip")
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    OutboxMessage.objects.filter(effect__resource="a").update(deliver_before=now())
    make_relay().drain()
    assert receiver.resources == ["b"]
    assert states(run) == ["poisoned", "delivered"]
    message = first_message()
    assert "has passed" in message.error_message
    assert message.sendings == 0


def test_message_that_kept_losing_its_relay_is_poison(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    OutboxMessage.objects.update(attempts=7, sendings=7)
    make_relay().drain()
    assert receiver.got == []
    assert states(run) == ["poisoned"]
    assert "lost its relay too often" in OutboxMessage.objects.get().error_message


def test_relay_leaves_alone_what_it_has_no_handler_for(engine, make_relay, own_registry):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    own_registry.clear()
    stranger = make_relay()
    stranger.drain()
    assert OutboxLane.objects.get().claim == 0
    declare(receiver)
    make_relay().drain()
    assert states(run) == ["delivered"]

"""Verbs on messages: tried now, sent again, skipped; each with its history row and audit entry, or its refusal."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from durableops import Refused
from durableops.engine import messages
from durableops.errors import MessageNotFound, TransitionRefused
from durableops.upkeep.invariants.report import examine
from runs.models import AuditEntry, IdempotencyRecord, OutboxBody, OutboxDestination, OutboxLane, OutboxMessage
from tests.engine.relaying.conftest import (
    Receiver,
    declare,
    finish,
    first_message,
    let_lanes_be_due,
    make_relay,
    rest_of,
    states,
)
from tests.factories import events_of, make_tenant, now
from tests.fixtures.engine import Background, holding, until_blocked
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

__all__ = ["make_relay"]


@pytest.fixture
def said(engine) -> dict[str, Any]:
    return {"tenant": engine.tenant, "actor": "ann", "reason": "the address was wrong"}


@pytest.fixture
def poisoned(engine, make_relay):
    """A run whose first message is poison and holds the second one."""
    receiver = Receiver(Refused("no such address"))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    relay.drain()
    assert states(run) == ["poisoned", "pending"]
    return run, receiver, relay


def is_sound(engine: Any) -> None:
    assert [(f.check.name, f.sample) for f in examine(engine.worker.database, grace_seconds=60).broken] == []


def test_poisoned_message_that_is_tried_again_opens_its_lane(engine, poisoned, said):
    run, receiver, relay = poisoned
    done = messages.retry_message(first_message().pk, **said)
    assert done.message == "is tried now."
    relay.drain()
    assert receiver.resources == ["a", "a", "b"]
    assert states(run) == ["delivered", "delivered"]
    assert events_of(run).count("retry_message") == 1
    entry = AuditEntry.objects.get(verb="retry_message")
    assert (entry.actor, entry.before["state"], entry.after["state"]) == ("ann", "poisoned", "pending")
    is_sound(engine)


def test_message_that_was_tried_again_has_all_its_attempts_anew(engine, make_relay, said):
    receiver = Receiver(*[ValueError("down")] * 3)
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    for _ in range(2):
        relay.drain()
        let_lanes_be_due()
    assert states(run) == ["poisoned"]
    messages.retry_message(first_message().pk, **said)
    relay.drain()
    assert states(run) == ["pending"]
    let_lanes_be_due()
    relay.drain()
    assert states(run) == ["delivered"]
    assert [attempt for *_, attempt in receiver.got] == [1, 2, 3, 4]
    is_sound(engine)


def test_waiting_message_is_tried_now_and_its_destination_does_not_rest_any_longer(engine, make_relay, said):
    receiver = Receiver(ValueError("down"))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    OutboxDestination.objects.update(failures=9, open_until=now().replace(year=2099))
    relay.drain()
    assert states(run) == ["pending"]
    messages.retry_message(first_message().pk, **said)
    assert rest_of() <= 0
    relay.drain()
    assert states(run) == ["delivered"]


def test_skipped_message_is_given_up_and_those_behind_it_go(engine, poisoned, said):
    run, receiver, relay = poisoned
    messages.skip_message(first_message().pk, **said)
    relay.drain()
    assert receiver.resources == ["a", "b"]
    assert states(run) == ["skipped", "delivered"]
    effect = IdempotencyRecord.objects.get(resource="a")
    assert effect.state == "given_up"
    assert AuditEntry.objects.get(verb="skip_message").reason == "the address was wrong"
    is_sound(engine)


def test_message_in_the_middle_of_a_lane_can_be_skipped(engine, make_relay, said):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b", "c"]})
    messages.skip_message(OutboxMessage.objects.get(effect__resource="b").pk, **said)
    make_relay().drain()
    assert receiver.resources == ["a", "c"]
    assert states(run) == ["delivered", "skipped", "delivered"]
    is_sound(engine)


def test_poison_that_held_nothing_can_be_retried_and_skipped(engine, make_relay, said):
    receiver = Receiver(Refused("no"), Refused("no"))
    declare(receiver, on_poison="skip")
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    relay.drain()
    assert states(run) == ["poisoned", "poisoned"]
    first, second = OutboxMessage.objects.order_by("id")
    messages.retry_message(first.pk, **said)
    messages.skip_message(second.pk, **said)
    relay.drain()
    assert states(run) == ["delivered", "skipped"]
    assert OutboxLane.objects.get().depth == 0
    is_sound(engine)


def test_delivered_message_can_be_sent_again_with_its_old_key_and_is_told_as_a_repeat(engine, make_relay, said):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    messages.redeliver(first_message().pk, **said)
    relay.drain()
    (_, _, first, _), (_, _, second, attempt) = receiver.got
    assert (first, attempt) == (second, 2)
    assert states(run) == ["delivered"]
    assert events_of(run).count("effects_repeated") == 1
    assert IdempotencyRecord.objects.get().state == "succeeded"
    is_sound(engine)


def test_message_whose_body_retention_removed_is_not_sent_again(engine, make_relay, said):
    declare(Receiver())
    engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    OutboxBody.objects.update(body=None)
    with pytest.raises(TransitionRefused, match="retention has removed it"):
        messages.redeliver(first_message().pk, **said)


@pytest.mark.parametrize("verb", [messages.retry_message, messages.skip_message])
def test_message_that_is_being_delivered_is_left_alone(engine, make_relay, said, verb):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(20) and {"id": "x"})
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.turn()
    eventually(lambda: len(receiver.got) == 1, hoping_for="the message under way")
    with pytest.raises(TransitionRefused, match="being delivered just now"):
        verb(first_message().pk, **said)
    go_on.set()
    finish(relay)
    assert states(run) == ["delivered"]
    assert AuditEntry.objects.get().verb == f"{verb.__name__} (refused)"


@pytest.mark.parametrize(
    ("verb", "state"),
    [(messages.retry_message, "delivered"), (messages.skip_message, "delivered"), (messages.redeliver, "poisoned")],
)
def test_verb_that_does_not_fit_is_refused_and_audited(engine, make_relay, said, verb, state):
    declare(Receiver() if state == "delivered" else Receiver(Refused("no")))
    engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    with pytest.raises(TransitionRefused, match=state):
        verb(first_message().pk, **said)
    assert AuditEntry.objects.get().verb == f"{verb.__name__} (refused)"


@pytest.mark.parametrize("verb", [messages.retry_message, messages.skip_message, messages.redeliver])
def test_message_of_another_tenant_is_not_found(poisoned, said, verb):
    with pytest.raises(MessageNotFound):
        verb(first_message().pk, **(said | {"tenant": make_tenant("other")}))
    assert not AuditEntry.objects.exists()


def test_two_people_at_one_message_do_it_once(engine, poisoned, said, second):
    message = first_message()
    with holding(second, "SELECT 1 FROM runs_outbox_lane WHERE id = %s FOR UPDATE", [message.lane_id]):
        asked = [Background(lambda: messages.skip_message(message.pk, **said)) for _ in range(2)]
        until_blocked(count=2)
    ended = []
    for each in asked:
        try:
            ended.append(each.result().message)
        except TransitionRefused as refused:
            ended.append(refused.wanted)
    assert sorted(ended) == ["a poisoned one, or one that waits", "is skipped."]
    assert OutboxLane.objects.get().depth == 1


def test_destination_is_stopped_once_and_let_go_on_once(engine, make_relay, said):
    receiver = Receiver()
    declare(receiver)
    assert messages.stop_destination("mail", **said) is True
    assert messages.stop_destination("mail", **said) is False
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    assert receiver.got == []
    assert messages.let_destination_go_on("mail", **said) is True
    assert messages.let_destination_go_on("mail", **said) is False
    relay.drain()
    assert states(run) == ["delivered"]
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == ["stop_destination", "let_destination_go_on"]

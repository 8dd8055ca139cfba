"""Relaying: at least once, in the order of the lane, under the lane's claim, and never delivered without an answer."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest

from durableops import Fatal, NotSent, Refused, Retry, RetryLater
from durableops.conf import override_conf
from durableops.engine import commands
from durableops.engine.burial import declare_ended
from durableops.engine.relaying.relay import Relay
from durableops.upkeep.outbox import free_lanes
from runs.models import IdempotencyRecord, OutboxBody, OutboxLane, OutboxMessage, RunEvent, Worker
from tests.engine.relaying.conftest import Receiver, declare, finish, first_message, id_of, let_lanes_be_due, states
from tests.factories import events_of, now
from tests.fixtures.engine import Background, terminate
from tests.waiting import eventually

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


# Relays that die, stand still, or lose their row.


def bury(relay: Relay, engine: Any) -> None:
    """Declare a relay dead, as the reaper would, and free its lanes, as upkeep does."""
    with engine.worker.database.transaction() as cursor:
        assert declare_ended(cursor, id_of(relay), why="its counter stood still")
    assert free_lanes(engine.worker.database) > 0


def test_relay_that_lost_its_rows_cannot_mark_them(engine, make_relay):  # C038
    """Relay one stands still with a batch in its hand; relay two delivers it; then relay one comes back."""
    go_on = threading.Event()
    receiver = Receiver(*[lambda: go_on.wait(20) and {"id": "late"}] * 4)
    declare(receiver)
    runs = [engine.run("post-mail", {"messages": ["a", "b"]}) for _ in range(4)]
    slow, quick = make_relay(concurrency=8), make_relay()
    slow.turn()
    eventually(lambda: len(receiver.got) == 4, hoping_for="four messages under way")
    bury(slow, engine)
    quick.drain()
    assert all(states(run) == ["delivered", "delivered"] for run in runs)
    before = list(OutboxMessage.objects.order_by("id").values())
    go_on.set()
    finish(slow)
    assert list(OutboxMessage.objects.order_by("id").values()) == before
    # At most what was in its hand arrived twice, under the same key, and each is told.
    assert sorted(receiver.resources) == ["a"] * 8 + ["b"] * 4
    for run in runs:
        keys = {key for run_id, resource, key, _ in receiver.got if run_id == str(run.pk) and resource == "a"}
        assert len(keys) == 1
        assert events_of(run).count("effects_repeated") == 1
        assert events_of(run).count("late_result_rejected") == 1
    assert IdempotencyRecord.objects.filter(attempts=2).count() == 4


def test_relay_that_was_declared_dead_sends_nothing_more_and_begins_anew(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    relay = make_relay()
    first = id_of(relay)
    with engine.worker.database.transaction() as cursor:
        declare_ended(cursor, first, why="its counter stood still")
    eventually(lambda: relay._life.is_lost.is_set(), hoping_for="the relay to notice")
    engine.run("post-mail", {"messages": ["a"]})
    relay.drain()
    assert receiver.got == []
    assert relay.go_on() is False
    relay.end()
    relay.begin()
    assert id_of(relay) != first
    relay.drain()
    assert receiver.resources == ["a"]


def test_sender_that_was_held_up_past_its_lease_sends_nothing(engine, make_relay, later):
    sent = []
    from durableops import State, step, tool, workflow

    @tool(safety="outbox", name="mail")
    def mail(call):
        later(1000)
        call.check()
        sent.append(call.key)

    class Facts(State):
        n: int = 0

    @workflow(name="one", version=1, state=Facts)
    class One:
        @step
        def a(run: Any) -> None:
            run.call(mail, resource="a")

    engine.run("one")
    relay = make_relay()
    relay.turn()
    finish(relay)
    assert sent == []
    assert OutboxMessage.objects.get().error_class == "NotSent"


def test_relays_lanes_are_freed_by_a_round_of_upkeep_once_it_is_dead(engine, make_relay):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(20))
    declare(receiver)
    engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.turn()
    eventually(lambda: len(receiver.got) == 1, hoping_for="the message under way")
    Worker.objects.filter(pk=id_of(relay)).update(ended_at=now(), ended_why="it is gone")
    engine.rounds()
    assert OutboxLane.objects.get().relay_id is None
    go_on.set()


def test_living_relays_lanes_are_left_alone(engine, make_relay):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(20))
    declare(receiver)
    engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.turn()
    engine.rounds()
    assert OutboxLane.objects.get().relay_id == id_of(relay)
    go_on.set()
    finish(relay)
    assert OutboxMessage.objects.get().state == "delivered"


def test_relay_that_is_stopped_lets_what_is_under_way_finish(engine, make_relay):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(20) and {"id": "x"})
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = Relay(concurrency=2, name="stopped relay of tests")
    running = Background(relay.run)
    eventually(lambda: len(receiver.got) == 1, hoping_for="the message under way")
    relay.stop()
    go_on.set()
    running.result()
    assert states(run) == ["delivered", "pending"]
    assert OutboxLane.objects.get().relay_id is None
    assert Worker.objects.get(kind="relay").ended_why == "stopped"


def test_relay_that_cannot_wait_any_longer_gives_its_lanes_back_and_the_next_sending_is_a_repeat(engine, make_relay):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(20))
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    with override_conf(grace_seconds=0.0):
        relay = Relay(concurrency=2, name="stopped relay of tests")
        running = Background(relay.run)
        eventually(lambda: len(receiver.got) == 1, hoping_for="the message under way")
        relay.stop()
        running.result()
    assert OutboxLane.objects.get().relay_id is None
    make_relay().drain()
    go_on.set()
    assert states(run) == ["delivered"]
    assert events_of(run).count("effects_repeated") == 1


def test_handler_that_never_comes_back_loses_its_message_and_its_late_answer_is_not_taken(engine, make_relay, later):
    go_on = threading.Event()
    receiver = Receiver(lambda: go_on.wait(30) and {"id": "late"})
    declare(receiver, timeout=5)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.turn()
    eventually(lambda: len(receiver.got) == 1, hoping_for="the message under way")
    later(60)
    relay.turn()
    relay.turn()
    message = OutboxMessage.objects.get()
    assert (message.state, message.error_class) == ("pending", "CallTimeout")
    go_on.set()
    eventually(lambda: relay._answers.qsize() > 0, hoping_for="the late answer")
    relay.turn()
    message.refresh_from_db()
    assert message.state == "pending"
    let_lanes_be_due()
    relay.drain()
    assert states(run) == ["delivered"]
    assert [attempt for *_, attempt in receiver.got] == [1, 2]


def test_connection_that_breaks_costs_no_message_and_sends_none_twice(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    relay = make_relay(name="broken relay of tests")

    def cut() -> Any:
        terminate("durableops broken relay of tests")
        return {"id": "x"}

    receiver.script = [cut, cut, cut]
    run = engine.run("post-mail", {"messages": [str(n) for n in range(6)]})
    relay.drain()
    assert receiver.resources == [str(n) for n in range(6)]
    assert states(run) == ["delivered"] * 6
    assert "effects_repeated" not in events_of(run)


def test_claim_whose_answer_was_lost_is_given_back_unsent(engine, make_relay, monkeypatch):
    from durableops.engine.database import ConnectionLost
    from runs import relaying

    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    real = relaying.claimed
    lost: list[Any] = []

    def claimed(cursor: Any) -> Any:
        found = real(cursor)
        if not lost:
            lost.append(found)
            raise ConnectionLost("it landed, and nobody heard of it")
        return found

    monkeypatch.setattr(relaying, "claimed", claimed)
    relay.drain()
    assert len(lost[0].taken) == 1
    assert states(run) == ["delivered"]
    assert "effects_repeated" not in events_of(run)
    message = OutboxMessage.objects.get()
    assert (message.attempts, message.sendings) == (1, 1)


def test_outcome_whose_commit_was_not_heard_of_is_written_once(engine, make_relay, monkeypatch):
    from durableops.engine.database import ConnectionLost
    from runs import delivering

    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    real = delivering.accepted
    lost: list[Any] = []

    def accepted(cursor: Any) -> Any:
        found = real(cursor)
        if not lost:
            lost.append(found)
            raise ConnectionLost("it landed, and nobody heard of it")
        return found

    monkeypatch.setattr(delivering, "accepted", accepted)
    relay.drain()
    assert receiver.resources == ["a", "b"]
    assert states(run) == ["delivered", "delivered"]
    assert "late_result_rejected" not in events_of(run)


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

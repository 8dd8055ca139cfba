"""Relays that die, stand still, or lose their row: no message is lost, none is marked by who no longer has it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from durableops.conf import override_conf
from durableops.engine.burial import declare_ended
from durableops.engine.database import ConnectionLost
from durableops.engine.relaying.relay import Relay
from durableops.upkeep.outbox import free_lanes
from runs import delivering, relaying
from runs.models import IdempotencyRecord, OutboxLane, OutboxMessage, Worker
from tests.engine.relaying.conftest import Receiver, declare, finish, id_of, let_lanes_be_due, states
from tests.factories import events_of, now
from tests.fixtures.engine import Background, terminate
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


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


def lose_first_answer(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """The first answer of a function is not heard, although what it answers for has landed. Returns that answer."""
    real = getattr(module, name)
    lost: list[Any] = []

    def answer(cursor: Any) -> Any:
        found = real(cursor)
        if not lost:
            lost.append(found)
            raise ConnectionLost("it landed, and nobody heard of it")
        return found

    monkeypatch.setattr(module, name, answer)
    return lost


def test_claim_whose_answer_was_lost_is_given_back_unsent(engine, make_relay, monkeypatch):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    lost = lose_first_answer(monkeypatch, relaying, "claimed")
    relay.drain()
    assert len(lost[0].taken) == 1
    assert states(run) == ["delivered"]
    assert "effects_repeated" not in events_of(run)
    message = OutboxMessage.objects.get()
    assert (message.attempts, message.sendings) == (1, 1)


def test_outcome_whose_commit_was_not_heard_of_is_written_once(engine, make_relay, monkeypatch):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a", "b"]})
    relay = make_relay()
    lose_first_answer(monkeypatch, delivering, "accepted")
    relay.drain()
    assert receiver.resources == ["a", "b"]
    assert states(run) == ["delivered", "delivered"]
    assert "late_result_rejected" not in events_of(run)

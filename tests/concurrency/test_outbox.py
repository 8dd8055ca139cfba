"""The outbox on two connections: rows that commit late, lanes emptied and filled at one moment, claims that meet."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import State, step, tool, workflow
from runs.models import OutboxLane, OutboxMessage
from tests.engine.relaying.conftest import Receiver, declare, make_relay, states
from tests.engine.relaying.test_claiming import claim
from tests.factories import make_due, make_message, make_run, make_worker
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

__all__ = ["make_relay"]


def test_message_that_commits_after_a_later_one_was_delivered_is_delivered(engine, make_relay, second):  # C040
    receiver = Receiver()
    declare(receiver)
    late = make_run(tenant=engine.tenant)
    effect = make_message(late).effect
    # The very rows, but not committed yet: with a lower id than what comes meanwhile.
    OutboxMessage.objects.all().delete()
    OutboxLane.objects.update(depth=0)
    lane = OutboxLane.objects.get()
    with second.transaction():
        second.execute("UPDATE runs_outbox_lane SET depth = 1, due_at = now() WHERE id = %s", [lane.pk])
        row = second.execute(
            "INSERT INTO runs_outbox_message (lane_id, effect_id, tenant_id, state, on_poison, attempts, sendings,"
            " created_at, error_class, error_message) VALUES (%s, %s, %s, 'pending', 'hold', 0, 0, now(), '', '')"
            " RETURNING id",
            [lane.pk, effect.pk, engine.tenant.pk],
        ).fetchone()
        run = engine.run("post-mail", {"messages": ["b"]})
        relay = make_relay()
        relay.drain()
        assert receiver.resources == ["b"]
    delivered = OutboxMessage.objects.get(lane__run=run)
    assert row is not None
    assert row[0] < delivered.pk
    relay.drain()
    assert receiver.resources == ["b", effect.resource]
    assert states(late) == ["delivered"]


def test_lane_that_is_emptied_while_a_run_adds_to_it_is_not_left_alone(engine, make_relay, second):
    """The relay settles the last message in one transaction, the run posts another one in a second."""
    receiver = Receiver()
    declare(receiver)

    class Facts(State):
        n: int = 0

    @tool(safety="outbox", name="steps", destination="mail")
    def send(call):
        return receiver.answer(call)

    @workflow(name="two", version=1, state=Facts)
    class Two:
        @step
        def a(run: Any) -> None:
            run.call(send, resource="a")
            run.sleep(60)
            run.call(send, resource="b")

    run = engine.run("two")
    relay = make_relay()
    relay.drain()
    lane = OutboxLane.objects.get(run=run)
    OutboxMessage.objects.update(state="pending", finished_at=None)
    OutboxLane.objects.update(depth=1)
    # Between taking and settling: the run's commit comes to wait for the lane that the relay has just locked.
    with holding(second, "SELECT 1 FROM runs_outbox_lane WHERE id = %s FOR UPDATE", [lane.pk]):
        make_due(run)
        engine.rounds()
        moving = Background(engine.drain)
        until_blocked()
        second.execute("UPDATE runs_outbox_message SET state = 'delivered', finished_at = now()")
        second.execute("UPDATE runs_outbox_lane SET depth = depth - 1 WHERE id = %s", [lane.pk])
    moving.result()
    lane.refresh_from_db()
    assert lane.depth == 1
    relay.drain()
    assert receiver.resources == ["a", "b"]


def test_head_that_another_relay_settled_a_moment_before_is_not_taken_again(database, second):
    """Claimed, delivered and freed between this claim's snapshot and its lock: the claim comes back without a head."""
    run = make_run()
    message, behind = make_message(run), make_message(run)
    lane = message.lane
    relay = make_worker(kind="relay").pk
    # A lock on the head lets the claim take its snapshot and its lane, and then wait.
    with second.transaction():
        second.execute("SELECT 1 FROM runs_outbox_message WHERE id = %s FOR UPDATE", [message.pk])
        claiming = Background(lambda: claim(database, relay_id=relay))
        until_blocked()
        second.execute("UPDATE runs_outbox_message SET state = 'delivered', finished_at = now() WHERE id = %s",
                       [message.pk])  # fmt: skip
    [taken] = claiming.result().taken
    assert (taken.lane_id, taken.message_id) == (lane.pk, None)
    behind.refresh_from_db()
    assert behind.attempts == 0


def test_lane_that_is_locked_by_somebody_delays_no_other(database, second):
    held, free = make_message(make_run()), make_message(make_run())
    with holding(second, "SELECT 1 FROM runs_outbox_lane WHERE id = %s FOR UPDATE", [held.lane_id]):
        assert [each.message_id for each in claim(database).taken] == [free.pk]

"""Each named constraint of the outbox and its webhooks, with a row that it refuses; used by test_constraints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runs.models import OutboxBody, OutboxDestination
from tests.factories import make_effect, make_endpoint, make_lane, make_message, make_run, make_tenant, now


def same_message_twice():
    message = make_message(make_run())
    make_message(message.lane.run, lane=message.lane, effect=message.effect)


def same_lane_twice():
    run = make_run()
    make_lane(run)
    make_lane(run)


def same_destination_twice():
    for _ in range(2):
        OutboxDestination.objects.create(tenant=make_tenant(), name="mail")


VIOLATIONS: dict[str, Callable[[], Any]] = {
    "outbox_lane_unique": same_lane_twice,
    "outbox_lane_depth_is_a_count": lambda: make_lane(make_run(), depth=-1),
    "outbox_lane_claimed_at_iff_claimed": lambda: make_lane(make_run(), depth=1, claimed_at=now()),
    "outbox_lane_held_is_not_claimed": lambda: make_lane(make_run(), depth=0, held_by=1),
    "outbox_message_state_known": lambda: make_message(make_run(), state="lost"),
    "outbox_message_on_poison_known": lambda: make_message(make_run(), on_poison="drop"),
    "outbox_message_finished_at_iff_finished": lambda: make_message(make_run(), state="delivered", finished_at=None),
    "outbox_message_sent_at_most_as_often_as_tried": lambda: make_message(make_run(), attempts=1, sendings=2),
    "outbox_message_once_in_a_lane": same_message_twice,
    "outbox_body_counts_messages": lambda: OutboxBody.objects.create(
        effect=make_effect(make_run()), body="{}", open_messages=-1
    ),
    "outbox_body_kept_while_needed": lambda: OutboxBody.objects.create(
        effect=make_effect(make_run()), body=None, open_messages=1
    ),
    "outbox_destination_unique": same_destination_twice,
    "outbox_destination_failing_since_iff_failing": lambda: OutboxDestination.objects.create(
        tenant=make_tenant(), name="mail", failures=1
    ),
    "outbox_destination_stopped_by_somebody": lambda: OutboxDestination.objects.create(
        tenant=make_tenant(), name="mail", stopped_at=now()
    ),
    "webhook_endpoint_secret_is_sealed": lambda: make_endpoint(secret=""),
    "webhook_endpoint_former_secret_ends": lambda: make_endpoint(former_secret="x"),
    "webhook_endpoint_disabled_for_a_reason": lambda: make_endpoint(enabled=False),
}

"""The queue of messages that could not be delivered: poisoned ones, oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet
from django.urls import reverse

from durableops.access import Permission
from durableops.console.inbox.frame import Asked, Entry, register
from durableops.console.inbox.keyset import KeysetQueue
from durableops.effects.addresses import shown_host
from runs.models import OutboxMessage


@register
class Undelivered(KeysetQueue):
    """Messages of the outbox that are not tried any more."""

    name = "undelivered"
    label = "Undelivered"
    icon = "send-horizontal"
    permission = Permission.SETTLE
    position = 40
    hot = "failed"
    template = "console/inbox/_undelivered.html"
    heads = ("To", "Why not", "Run")
    empty = (
        "A message comes here when its receiver refused it, when its attempts are used up or its time is over. You "
        "then have it tried again, or skip it."
    )

    table, open = "runs_outbox_message", "q.state = 'poisoned'"

    def rows(self) -> QuerySet[OutboxMessage]:
        return OutboxMessage.objects.select_related("effect", "lane__run", "tenant", "endpoint").defer("effect__result")

    def entries(self, rows: Sequence[OutboxMessage], asked: Asked) -> list[Entry]:
        return [_entry(message) for message in rows]


def _entry(message: OutboxMessage) -> Entry:
    effect, lane = message.effect, message.lane
    to = shown_host(message.endpoint.url) if message.endpoint is not None else lane.destination
    return Entry(
        key=str(message.pk),
        title=f"{effect.tool} · {effect.resource}",
        url=reverse("console:message", args=[message.pk]),
        since=message.finished_at or message.created_at,
        tenant=message.tenant.slug,
        hot=f"holds {lane.depth - 1}" if lane.held_by == message.pk and lane.depth > 1 else "",
        facts={"message": message, "run": lane.run, "to": to},
    )

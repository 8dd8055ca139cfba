"""The queue of messages that could not be delivered: poisoned ones, oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.urls import reverse

from durableops.access import Permission
from durableops.console.inbox.frame import COUNT_CAP, PER_PAGE, Asked, Entry, Page, Queue, register
from durableops.effects.addresses import shown_host
from runs.models import OutboxMessage

_OPEN = """
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT m.id FROM runs_outbox_message m
    WHERE m.tenant_id = t.id AND m.state = 'poisoned' AND m.id > %(after)s ORDER BY m.id LIMIT %(limit)s) x
ORDER BY x.id LIMIT %(limit)s"""
_COUNT = """
SELECT count(*) FROM (
    SELECT 1 FROM runs_outbox_message m WHERE m.tenant_id = ANY(%s) AND m.state = 'poisoned' LIMIT %s) x"""


@register
class Undelivered(Queue):
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

    def count(self, tenants: Sequence[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, [list(tenants), COUNT_CAP + 1])
            return int(cursor.fetchone()[0])

    def page(self, asked: Asked) -> Page:
        after = int(asked.cursor) if asked.cursor.isdecimal() and len(asked.cursor) < 19 else 0
        with connection.cursor() as cursor:
            cursor.execute(_OPEN, {"tenants": list(asked.tenants), "after": after, "limit": PER_PAGE + 1})
            ids = [row[0] for row in cursor.fetchall()]
        rows = OutboxMessage.objects.select_related("effect", "lane__run", "tenant", "endpoint")
        known = rows.defer("effect__result").in_bulk(ids[:PER_PAGE])
        found = [known[pk] for pk in ids[:PER_PAGE] if pk in known]
        following = str(found[-1].pk) if len(ids) > PER_PAGE and found else ""
        return Page(entries=[_entry(message) for message in found], following=following)


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

"""The queue of effects in doubt: oldest first, those of runs that ended included."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection
from django.http import Http404
from django.urls import reverse

from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.inbox.frame import COUNT_CAP, PER_PAGE, Asked, Entry, Page, Queue, register
from durableops.engine import doubts as engine
from runs.models import Doubt, Tenant

_OPEN = """
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT d.id, d.since FROM runs_doubt d
    WHERE d.tenant_id = t.id AND d.settled_at IS NULL AND (d.since, d.id) > (%(since)s, %(after)s) {mine}
    ORDER BY d.since, d.id LIMIT %(limit)s) x
ORDER BY x.since, x.id LIMIT %(limit)s"""
_COUNT = """
SELECT count(*) FROM (SELECT 1 FROM runs_doubt d WHERE d.tenant_id = ANY(%s) AND d.settled_at IS NULL LIMIT %s) x"""


@register
class Doubts(Queue):
    """Effects that may or may not have happened."""

    name = "doubt"
    label = "In doubt"
    icon = "circle-question-mark"
    permission = Permission.SETTLE
    position = 10
    hot = "in_doubt"
    template = "console/inbox/_doubt.html"
    heads = ("Request", "Why nobody knows", "Run")
    empty = (
        "A call whose outcome nobody knows comes here: a timeout, a lost worker, a key the other side no longer "
        "remembers. You then say what became of it."
    )

    def count(self, tenants: Sequence[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, [list(tenants), COUNT_CAP + 1])
            return int(cursor.fetchone()[0])

    def page(self, asked: Asked) -> Page:
        since, after = _parsed(asked.cursor)
        params = {"tenants": list(asked.tenants), "since": since, "after": after, "limit": PER_PAGE + 1}
        params["me"] = asked.access.actor
        with connection.cursor() as cursor:
            cursor.execute(_OPEN.format(mine="AND d.claimed_by = %(me)s" if asked.mine else ""), params)
            ids = [row[0] for row in cursor.fetchall()]
        known = Doubt.objects.select_related("effect", "run", "tenant").defer("effect__result").in_bulk(ids[:PER_PAGE])
        found = [known[pk] for pk in ids[:PER_PAGE] if pk in known]
        more = len(ids) > PER_PAGE and found
        following = f"{found[-1].since.isoformat()}~{found[-1].pk}" if more else ""
        return Page(entries=[_entry(doubt, asked.access) for doubt in found], following=following)

    def claim(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        engine.claim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)

    def release(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        engine.unclaim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)


def _tenant_of(key: str, tenants: Sequence[int]) -> Tenant:
    """The tenant of a doubt, if it is one of these. Raises Http404."""
    doubt = Doubt.objects.select_related("tenant").filter(pk=key if key.isdecimal() else 0).first()
    if doubt is None or doubt.tenant_id not in tenants:
        raise Http404("There is no such doubt.")
    return doubt.tenant


def _parsed(cursor: str) -> tuple[datetime | str, int]:
    since, _, after = cursor.partition("~")
    try:
        return datetime.fromisoformat(since), int(after)
    except ValueError:
        return "-infinity", 0


def _entry(doubt: Doubt, access: Access) -> Entry:
    effect = doubt.effect
    return Entry(
        key=str(doubt.pk),
        title=f"{effect.tool} · {effect.resource}",
        url=reverse("console:doubt", args=[doubt.pk]),
        since=doubt.since,
        tenant=doubt.tenant.slug,
        claimed_by=doubt.claimed_by,
        claimed_at=doubt.claimed_at,
        hot="escalated" if doubt.escalated_at else "reminded" if doubt.reminded_at else "",
        facts={
            "doubt": doubt,
            "effect": effect,
            "run": doubt.run,
            "asked": effect.request_summary if access.sees_payloads(doubt.tenant_id) else None,
        },
    )

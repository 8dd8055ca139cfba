"""The queue of compensation that waits for a person: owed, proposed, failed, or a task to be done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection
from django.http import Http404
from django.urls import reverse

from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.inbox.frame import COUNT_CAP, PER_PAGE, Asked, Entry, Page, Queue, register
from durableops.engine import compensating
from runs.models import Compensation, Tenant

# What a tool is undoing, or has its turn later, waits for nobody.
WAITS_FOR_A_PERSON = "(c.state IN ('owed', 'proposed', 'failed') OR (c.state = 'running' AND c.how = 'person'))"
_OPEN = f"""
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT c.id, c.owed_at FROM runs_compensation c
    WHERE c.tenant_id = t.id AND c.state NOT IN ('done', 'waived') AND {WAITS_FOR_A_PERSON}
      AND (c.owed_at, c.id) > (%(since)s, %(after)s) {{mine}}
    ORDER BY c.owed_at, c.id LIMIT %(limit)s) x
ORDER BY x.owed_at, x.id LIMIT %(limit)s"""
_COUNT = f"""
SELECT count(*) FROM (SELECT 1 FROM runs_compensation c
    WHERE c.tenant_id = ANY(%s) AND c.state NOT IN ('done', 'waived') AND {WAITS_FOR_A_PERSON} LIMIT %s) x"""
_HOT = {"failed": "failed", "proposed": "second person"}


@register
class Compensations(Queue):
    """Effects that are to be undone and wait for somebody."""

    name = "compensation"
    label = "Compensation"
    icon = "rotate-ccw"
    permission = Permission.SETTLE
    position = 20
    hot = "warning"
    template = "console/inbox/_compensation.html"
    heads = ("State", "What is to be done", "Run")
    empty = (
        "What a cancelled run had done comes here when it is to be undone: owed until somebody decides, tasks with "
        "instructions, proposals that want a second person, and undoing that failed."
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
            cursor.execute(_OPEN.format(mine="AND c.claimed_by = %(me)s" if asked.mine else ""), params)
            ids = [row[0] for row in cursor.fetchall()]
        rows = Compensation.objects.select_related("effect", "run", "tenant").defer("effect__result")
        known = rows.in_bulk(ids[:PER_PAGE])
        found = [known[pk] for pk in ids[:PER_PAGE] if pk in known]
        more = len(ids) > PER_PAGE and found
        following = f"{found[-1].owed_at.isoformat()}~{found[-1].pk}" if more else ""
        return Page(entries=[_entry(one) for one in found], following=following)

    def claim(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        compensating.claim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)

    def release(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        compensating.unclaim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)


def _tenant_of(key: str, tenants: Sequence[int]) -> Tenant:
    """The tenant of a compensation, if it is one of these. Raises Http404."""
    one = Compensation.objects.select_related("tenant").filter(pk=key if key.isdecimal() else 0).first()
    if one is None or one.tenant_id not in tenants:
        raise Http404("There is no such compensation.")
    return one.tenant


def _parsed(cursor: str) -> tuple[datetime | str, int]:
    since, _, after = cursor.partition("~")
    try:
        return datetime.fromisoformat(since), int(after)
    except ValueError:
        return "-infinity", 0


def _entry(one: Compensation) -> Entry:
    return Entry(
        key=str(one.pk),
        title=f"{one.effect.tool} · {one.effect.resource}",
        url=reverse("console:compensation", args=[one.pk]),
        since=one.owed_at,
        tenant=one.tenant.slug,
        claimed_by=one.claimed_by,
        claimed_at=one.claimed_at,
        hot=_HOT.get(one.state, ""),
        facts={"one": one, "run": one.run},
    )

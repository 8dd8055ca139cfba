"""The queue of what runs ask people, oldest first, with who may decide and when a clock decides instead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection
from django.http import Http404
from django.urls import reverse
from django.utils import timezone

from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.inbox.frame import COUNT_CAP, PER_PAGE, Asked, Entry, Page, Queue, register
from durableops.engine import deciding
from runs.models import Approval, Tenant, Wait

_MINE = """AND EXISTS (SELECT 1 FROM runs_approval a WHERE a.wait_id = w.id
    AND (a.claimed_by = %(me)s OR a.delegated_to = %(me)s))"""
_OPEN = """
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT w.id FROM runs_wait w
    WHERE w.tenant_id = t.id AND w.state = 'open' AND w.kind = 'approval' AND w.id > %(after)s {mine}
    ORDER BY w.id LIMIT %(limit)s) x
ORDER BY x.id LIMIT %(limit)s"""
_COUNT = """
SELECT count(*) FROM (SELECT 1 FROM runs_wait w
    WHERE w.tenant_id = ANY(%s) AND w.state = 'open' AND w.kind = 'approval' LIMIT %s) x"""
SOON = timedelta(hours=24)


@register
class Approvals(Queue):
    """Questions to people."""

    name = "approval"
    label = "Approvals"
    icon = "user-check"
    permission = Permission.SETTLE
    position = 5
    hot = "waiting"
    template = "console/inbox/_approval.html"
    heads = ("Question", "For", "Run")
    empty = (
        "A run that asks for a decision comes here, with the facts it was shown, who may decide, and what happens when "
        "nobody does."
    )

    def count(self, tenants: Sequence[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, [list(tenants), COUNT_CAP + 1])
            return int(cursor.fetchone()[0])

    def page(self, asked: Asked) -> Page:
        after = int(asked.cursor) if asked.cursor.isdecimal() and len(asked.cursor) < 19 else 0
        params: dict[str, Any] = {
            "tenants": list(asked.tenants),
            "after": after,
            "limit": PER_PAGE + 1,
            "me": asked.access.actor,
        }
        with connection.cursor() as cursor:
            cursor.execute(_OPEN.format(mine=_MINE if asked.mine else ""), params)
            ids = [row[0] for row in cursor.fetchall()]
        known = Wait.objects.select_related("approval", "run__tenant").defer("facts").in_bulk(ids[:PER_PAGE])
        found = [known[pk] for pk in ids[:PER_PAGE] if pk in known]
        following = str(found[-1].pk) if len(ids) > PER_PAGE and found else ""
        return Page(entries=[_entry(one, asked.access) for one in found], following=following)

    def claim(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        deciding.claim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)

    def release(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        deciding.unclaim(int(key), tenant=_tenant_of(key, tenants), actor=access.actor)


def _tenant_of(key: str, tenants: Sequence[int]) -> Tenant:
    """The tenant of a question, if it is one of these. Raises Http404."""
    wait = Wait.objects.select_related("tenant").filter(pk=key if key.isdecimal() else 0, kind="approval").first()
    if wait is None or wait.tenant_id not in tenants:
        raise Http404("There is no such approval.")
    return wait.tenant


def _entry(wait: Wait, access: Access) -> Entry:
    terms, run = deciding.terms_of(wait), wait.run
    roles = access.deciding_roles(run.tenant_id)
    needed = deciding.why_not(terms, run, actor=access.actor, roles=roles)
    here = (
        reverse("console:run", args=[run.pk]) if needed else reverse("console:decide", args=[run.pk, wait.pk, "decide"])
    )
    return Entry(
        key=str(wait.pk),
        title=wait.name + (f" · round {terms.round}" if terms.round > 1 else ""),
        url=here,
        since=wait.opened_at,
        tenant=run.tenant.slug,
        expires_at=wait.expires_at,
        claimed_by=terms.claimed_by,
        claimed_at=terms.claimed_at,
        hot=_hot(wait, terms, access.actor),
        facts={"wait": wait, "terms": terms, "run": run, "who": deciding.who(terms), "needed": needed},
    )


def _hot(wait: Wait, terms: Approval, actor: str) -> str:
    if terms.delegated_to == actor:
        return "for you"
    if terms.escalated_at:
        return "escalated"
    if wait.expires_at is not None and wait.expires_at - timezone.now() < SOON:
        return "ends soon"
    return "reminded" if terms.reminders else ""

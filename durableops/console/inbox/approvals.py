"""The queue of what runs ask people, oldest first, with who may decide and when a clock decides instead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.inbox.frame import Asked, Entry, register
from durableops.console.inbox.keyset import ClaimedQueue
from durableops.engine import deciding
from runs.models import Approval, Wait

SOON = timedelta(hours=24)


@register
class Approvals(ClaimedQueue):
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

    table, open = "runs_wait", "q.state = 'open' AND q.kind = 'approval'"
    mine = """EXISTS (SELECT 1 FROM runs_approval a WHERE a.wait_id = q.id
        AND (a.claimed_by = %(me)s OR a.delegated_to = %(me)s))"""
    claims, unclaims = deciding.claim, deciding.unclaim

    def rows(self) -> QuerySet[Wait]:
        return Wait.objects.filter(kind="approval").select_related("approval", "run__tenant").defer("facts")

    def entries(self, rows: Sequence[Wait], asked: Asked) -> list[Entry]:
        return [_entry(wait, asked.access) for wait in rows]


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

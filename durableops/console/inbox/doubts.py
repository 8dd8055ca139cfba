"""The queue of effects in doubt: oldest first, those of runs that ended included."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet
from django.urls import reverse

from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.inbox.frame import Asked, Entry, register
from durableops.console.inbox.keyset import ClaimedQueue
from durableops.engine import doubts as engine
from runs.models import Doubt


@register
class Doubts(ClaimedQueue):
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

    table, open, since = "runs_doubt", "q.settled_at IS NULL", "since"
    claims, unclaims = engine.claim, engine.unclaim

    def rows(self) -> QuerySet[Doubt]:
        return Doubt.objects.select_related("effect", "run", "tenant").defer("effect__result")

    def entries(self, rows: Sequence[Doubt], asked: Asked) -> list[Entry]:
        return [_entry(doubt, asked.access) for doubt in rows]


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

"""The queue of compensation that waits for a person: owed, proposed, failed, or a task to be done by hand."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet
from django.urls import reverse

from durableops.access import Permission
from durableops.console.inbox.frame import Asked, Entry, register
from durableops.console.inbox.keyset import ClaimedQueue
from durableops.engine import compensating
from runs.models import Compensation

# What a tool is undoing, or has its turn later, waits for nobody.
_WAITS_FOR_A_PERSON = "(q.state IN ('owed', 'proposed', 'failed') OR (q.state = 'running' AND q.how = 'person'))"
_HOT = {"failed": "failed", "proposed": "second person"}


@register
class Compensations(ClaimedQueue):
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

    table, since = "runs_compensation", "owed_at"
    open = f"q.state NOT IN ('done', 'waived') AND {_WAITS_FOR_A_PERSON}"
    claims, unclaims = compensating.claim, compensating.unclaim

    def rows(self) -> QuerySet[Compensation]:
        return Compensation.objects.select_related("effect", "run", "tenant").defer("effect__result")

    def entries(self, rows: Sequence[Compensation], asked: Asked) -> list[Entry]:
        return [_entry(one) for one in rows]


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

"""The queue of reviews: runs that today's code cannot safely go on with, oldest finding first."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import QuerySet
from django.urls import reverse

from durableops.access import Permission
from durableops.console.inbox.frame import Asked, Entry, register
from durableops.console.inbox.keyset import ClaimedQueue
from durableops.engine import reshaping
from runs.models import Review

_ALIKE = """
SELECT v.fingerprint, count(*) FROM runs_review v
WHERE v.tenant_id = ANY(%s) AND v.closed_at IS NULL AND v.fingerprint = ANY(%s) GROUP BY v.fingerprint"""
DIFFERENCES_SHOWN = 3


@register
class Reviews(ClaimedQueue):
    """Findings about runs that a person has to decide about."""

    name = "review"
    label = "Reviews"
    icon = "list-checks"
    permission = Permission.REVIEW
    position = 20
    hot = "in_review"
    template = "console/inbox/_review.html"
    heads = ("What does not fit", "Alike", "Run")
    empty = (
        "A run whose recorded version today's code cannot safely read comes here, with what changed. You then migrate "
        "it, keep it on its version, or end it."
    )

    table, open, since = "runs_review", "q.closed_at IS NULL", "found_at"
    claims, unclaims = reshaping.claim, reshaping.unclaim

    def rows(self) -> QuerySet[Review]:
        return Review.objects.select_related("run", "tenant", "plan", "target")

    def entries(self, rows: Sequence[Review], asked: Asked) -> list[Entry]:
        with connection.cursor() as cursor:
            cursor.execute(_ALIKE, [list(asked.tenants), sorted({review.fingerprint for review in rows})])
            alike = dict(cursor.fetchall())
        return [_entry(one, alike.get(one.fingerprint, 1)) for one in rows]


def _entry(review: Review, alike: int) -> Entry:
    versions = f"v{review.plan.version}" + (f" → v{review.target.version}" if review.target else "")
    return Entry(
        key=str(review.pk),
        title=f"{review.workflow} {versions}",
        url=reverse("console:review", args=[review.pk]),
        since=review.found_at,
        tenant=review.tenant.slug,
        claimed_by=review.claimed_by,
        claimed_at=review.claimed_at,
        hot="second reviewer" if review.second_asked_by else "",
        facts={
            "review": review,
            "run": review.run,
            "alike": alike,
            "differences": review.differences[:DIFFERENCES_SHOWN],
            "more": max(0, len(review.differences) - DIFFERENCES_SHOWN),
        },
    )

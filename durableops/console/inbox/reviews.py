"""The queue of reviews: runs that today's code cannot safely go on with, oldest finding first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection
from django.urls import reverse

from durableops.access import Permission
from durableops.console.inbox.frame import COUNT_CAP, PER_PAGE, Asked, Entry, Page, Queue, register
from runs.models import Review

_OPEN = """
SELECT x.id FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
    SELECT v.id, v.found_at FROM runs_review v
    WHERE v.tenant_id = t.id AND v.closed_at IS NULL AND (v.found_at, v.id) > (%(since)s, %(after)s)
    ORDER BY v.found_at, v.id LIMIT %(limit)s) x
ORDER BY x.found_at, x.id LIMIT %(limit)s"""
_COUNT = """
SELECT count(*) FROM (SELECT 1 FROM runs_review v WHERE v.tenant_id = ANY(%s) AND v.closed_at IS NULL LIMIT %s) x"""
_ALIKE = """
SELECT v.fingerprint, count(*) FROM runs_review v
WHERE v.tenant_id = ANY(%s) AND v.closed_at IS NULL AND v.fingerprint = ANY(%s) GROUP BY v.fingerprint"""
DIFFERENCES_SHOWN = 3


@register
class Reviews(Queue):
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

    def count(self, tenants: Sequence[int]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, [list(tenants), COUNT_CAP + 1])
            return int(cursor.fetchone()[0])

    def page(self, asked: Asked) -> Page:
        since, after = _parsed(asked.cursor)
        params = {"tenants": list(asked.tenants), "since": since, "after": after, "limit": PER_PAGE + 1}
        with connection.cursor() as cursor:
            cursor.execute(_OPEN, params)
            ids = [row[0] for row in cursor.fetchall()]
            known = Review.objects.select_related("run", "tenant", "plan", "target").in_bulk(ids[:PER_PAGE])
            found = [known[pk] for pk in ids[:PER_PAGE] if pk in known]
            cursor.execute(_ALIKE, [list(asked.tenants), sorted({review.fingerprint for review in found})])
            alike = dict(cursor.fetchall())
        following = f"{found[-1].found_at.isoformat()}~{found[-1].pk}" if len(ids) > PER_PAGE and found else ""
        return Page(entries=[_entry(one, alike.get(one.fingerprint, 1)) for one in found], following=following)


def _parsed(cursor: str) -> tuple[datetime | str, int]:
    since, _, after = cursor.partition("~")
    try:
        return datetime.fromisoformat(since), int(after)
    except ValueError:
        return "-infinity", 0


def _entry(review: Review, alike: int) -> Entry:
    versions = f"v{review.plan.version}" + (f" → v{review.target.version}" if review.target else "")
    return Entry(
        key=str(review.pk),
        title=f"{review.workflow} {versions}",
        url=reverse("console:run", args=[review.run_id]),
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

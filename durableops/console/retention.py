"""What the Retention page shows: how long each class is kept and who says so, what went, holds, erasures. Bounded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from durableops.authoring import registry
from durableops.engine.retention.lengths import say
from runs.models import Cleanup, Erasure, LegalHold, RetentionRule, Run, Tenant, WorkflowPlan
from runs.retention.classes import SUBJECTS, in_words

MOST_WORKFLOWS = 60
NEWEST_CLEANUPS = 20_000
"""Entries of the log that are looked through for a tenant's own."""
NEWEST_RUNS = 20_000
"""Runs of a tenant that are counted for an erasure."""
PER_PAGE = 50
SHOWN = 50

_WINDOWS = """
SELECT w.name, s.name, x.seconds, x.rule FROM unnest(%(workflows)s::text[]) w(name)
CROSS JOIN unnest(%(subjects)s::text[]) s(name)
CROSS JOIN LATERAL runs_retention_window(%(tenant)s, w.name, s.name) x"""
_CLEANUPS = f"""
SELECT x.id FROM (SELECT c.id, c.at, c.tenant_id FROM runs_cleanup c ORDER BY c.at DESC, c.id DESC
    LIMIT {NEWEST_CLEANUPS}) x
WHERE x.tenant_id = %(tenant)s AND x.id < %(before)s ORDER BY x.at DESC, x.id DESC LIMIT %(limit)s"""
_CONCERNED = f"""
SELECT count(*), count(*) FILTER (WHERE x.finished_at IS NULL) FROM (
    SELECT r.labels, r.finished_at FROM runs_run r WHERE r.tenant_id = %(tenant)s
    ORDER BY r.created_at DESC, r.id DESC LIMIT {NEWEST_RUNS}) x
WHERE %(label)s = '' OR x.labels ->> %(label)s = %(value)s"""
OF_PROMPTS = """(CASE WHEN EXISTS (SELECT 1 FROM runs_prompt p WHERE p.run_id = %(run)s) THEN (
    SELECT jsonb_build_array(v.free_at, v.seconds, v.held, isfinite(v.free_at))
    FROM runs_retention_verdicts(ARRAY[%(run)s::uuid], now()) v WHERE v.data_class = 'raw_prompt') END)"""
"""A column for a query about one run: what `prompts_line` tells about, if it has raw prompts."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """How long something is kept in one place."""

    subject: str
    length: str
    by: str
    """Whose rule says it: this place's own, a wider one, or the default."""
    own: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the matrix."""

    workflow: str
    """Empty for every workflow that has no rule of its own."""
    windows: list[Window]


def matrix(tenant: Tenant) -> list[Row]:
    """Every workflow there is, with how long each class of it is kept for this tenant."""
    names = ["", *_workflows(tenant)]
    with connection.cursor() as cursor:
        cursor.execute(_WINDOWS, {"tenant": tenant.pk, "workflows": names, "subjects": list(SUBJECTS)})
        found = {(row[0], row[1]): row[2:] for row in cursor.fetchall()}
    numbers = {rule for _seconds, rule in found.values() if rule}
    known = {rule.pk: rule for rule in RetentionRule.objects.filter(pk__in=numbers)}
    return [
        Row(workflow=name, windows=[_window(subject, name, found[name, subject], known) for subject in SUBJECTS])
        for name in names
    ]


def _window(
    subject: str, workflow: str, found: tuple[int | None, int], known: dict[int, RetentionRule]
) -> Window:  # fmt: skip
    seconds, number = found
    rule = known.get(number)
    if rule is None:
        return Window(subject=subject, length=say(seconds), by="default", own=False)
    own = rule.tenant_id is not None and rule.workflow == workflow
    whose = "every tenant" if rule.tenant_id is None else "this tenant"
    place = f"workflow {rule.workflow}, {whose}" if rule.workflow else whose
    return Window(
        subject=subject, length=say(seconds), by=f"rule {rule.pk} for {place}, by {rule.actor}: {rule.reason}", own=own
    )


def _workflows(tenant: Tenant) -> list[str]:
    names = {definition.name for definition in registry.workflows()}
    names |= set(WorkflowPlan.objects.values_list("workflow", flat=True).distinct()[:MOST_WORKFLOWS])
    names |= set(
        RetentionRule.objects.filter(tenant=tenant).exclude(workflow="").values_list("workflow", flat=True)
        .distinct()[:MOST_WORKFLOWS]
    )  # fmt: skip
    return sorted(names)[:MOST_WORKFLOWS]


def cleanups(tenant: Tenant, *, before: int | None) -> tuple[list[Cleanup], int | None]:
    """What went of this tenant's, newest first, and where the next page begins."""
    place = {"tenant": tenant.pk, "before": before or 2**62, "limit": PER_PAGE + 1}
    with connection.cursor() as cursor:
        cursor.execute(_CLEANUPS, place)
        ids = [row[0] for row in cursor.fetchall()]
    rows = list(Cleanup.objects.filter(pk__in=ids[:PER_PAGE]).order_by("-at", "-pk"))
    return rows, ids[PER_PAGE - 1] if len(ids) > PER_PAGE else None


def holds(tenant: Tenant) -> tuple[Sequence[LegalHold], Sequence[LegalHold]]:
    """Those that stand, and the last that were lifted."""
    mine = LegalHold.objects.filter(tenant=tenant)
    standing = mine.filter(lifted_at=None).order_by("-pk")[:SHOWN]
    return list(standing), list(mine.exclude(lifted_at=None).order_by("-pk")[:SHOWN])


def erasures(tenant: Tenant) -> list[tuple[Erasure, list[tuple[str, int, int]], list[tuple[str, int]]]]:
    """Requests, newest first: each with what went (class, rows, bytes) and what stays (why, runs)."""
    return [
        (
            one,
            [(name, went["rows"], went["bytes"]) for name, went in sorted(one.erased.items())],
            [(in_words(why), number) for why, number in sorted(one.stayed.items())],
        )
        for one in Erasure.objects.filter(tenant=tenant).order_by("-pk")[:SHOWN]
    ]


@dataclass(frozen=True, kw_only=True)
class Concerned:
    """What an erasure would be about."""

    runs: int
    open: int
    capped: bool
    """Whether there may be more: only the newest runs were looked at."""
    holds: int
    """Legal holds that stand in the tenant."""


def concerned(tenant: Tenant, *, label: str, value: str) -> Concerned:
    """How many runs carry the label, or how many there are."""
    with connection.cursor() as cursor:
        cursor.execute(_CONCERNED, {"tenant": tenant.pk, "label": label, "value": value})
        runs, opened = cursor.fetchone()
    total = Run.objects.filter(tenant=tenant)[NEWEST_RUNS : NEWEST_RUNS + 1].exists()
    standing = LegalHold.objects.filter(tenant=tenant, lifted_at=None).count()
    return Concerned(runs=runs, open=opened, capped=total, holds=standing)


def prompts_line(run: Run, verdict: Any) -> str:
    """What becomes of a run's raw prompts, for the head of its page; empty for one that has none."""
    if verdict is None:
        return ""
    free, seconds, held, ends = json.loads(verdict) if isinstance(verdict, str) else verdict
    goes_at = datetime.fromisoformat(free) if free and ends and not held else None
    length, why = say(seconds), [in_words(holder) for holder in held]
    if not run.is_terminal:
        return "are kept" if seconds is None else f"go {length} after its end"
    if why:
        return f"stay: {', '.join(why)}"
    if goes_at is None:
        return "are kept"
    at = timezone.localtime(goes_at)
    year = "" if at.year == timezone.localtime().year else f" {at.year}"
    return "go soon" if at <= timezone.localtime() else f"go on {at.day} {at:%B}{year}"

"""Reading stored plans for pages: one that cannot be read leaves a page with less on it, never an error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from uuid import UUID

from django.db import connection

from runs.models import MadePlan, Run

PLANS_SHOWN = 50
# What was committed before the plan that is in force, and what that plan says.
_OWN = """
SELECT r.id, p.steps::text, p.number, (
    SELECT coalesce(jsonb_agg(c.step_id ORDER BY c.seq), '[]')::text FROM runs_checkpoint c
    WHERE c.run_id = r.id AND c.kind IN ('step', 'finish') AND c.seq <= p.seq AND NOT EXISTS (
        SELECT 1 FROM runs_lineage l WHERE l.run_id = c.run_id AND l.number > c.lineage AND c.seq > l.from_seq))
FROM runs_run r JOIN LATERAL (
    SELECT m.steps, m.seq, m.number FROM runs_made_plan m WHERE m.run_id = r.id AND NOT EXISTS (
        SELECT 1 FROM runs_lineage l WHERE l.run_id = m.run_id AND l.number > m.lineage AND m.seq > l.from_seq)
    ORDER BY m.seq DESC LIMIT 1) p ON true
WHERE r.id = ANY(%s)"""


def plan_steps(run: Run, own: list[str] | None = None) -> list[str]:
    """The ids of the run's steps in order, by its own plan where it made one; a plan that cannot be read has none."""
    if own is not None:
        return own
    plan = run.plan.plan if isinstance(run.plan.plan, dict) else {}
    found = plan.get("steps", [])
    return [str(step["id"]) for step in found if isinstance(step, dict) and "id" in step]


def own_steps(runs: Iterable[Run]) -> dict[UUID, list[str]]:
    """Of runs that made a plan for themselves, the steps that were committed before it and those it has."""
    asked = [run.pk for run in runs if run.own_plan]
    if not asked:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_OWN, [asked])
        rows = cursor.fetchall()
    return {run_id: [str(each) for each in json.loads(done) + json.loads(steps)] for run_id, steps, _, done in rows}


def made_plans(run: Run) -> list[MadePlan]:
    """The plans it made for itself, newest first, the one in force marked as such."""
    if not run.own_plan:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_OWN, [[run.pk]])
        row = cursor.fetchone()
    found = list(MadePlan.objects.filter(run=run).order_by("-number")[:PLANS_SHOWN])
    for one in found:
        one.holds = row is not None and one.number == row[2]  # type: ignore[attr-defined]
    return found

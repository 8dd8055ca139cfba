"""Reading stored plans for pages: one that cannot be read leaves a page with less on it, never an error."""

from __future__ import annotations

from runs.models import Run


def plan_steps(run: Run) -> list[str]:
    """The plan's step ids in order; a plan that cannot be read has none."""
    plan = run.plan.plan if isinstance(run.plan.plan, dict) else {}
    found = plan.get("steps", [])
    return [str(step["id"]) for step in found if isinstance(step, dict) and "id" in step]

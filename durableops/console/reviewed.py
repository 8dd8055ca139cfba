"""One finding as the review desk shows it: both plans side by side, the checkpoint before and after, what is next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from django.db import connection

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.console import diffs, guarding
from durableops.console.actions import Meaning
from durableops.engine import guard, migrating
from durableops.errors import MigrationRefused, WorkflowNotFound
from runs.models import Checkpoint, Review, Run, WorkflowPlan


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step of the old plan beside what stands there in the new one."""

    kind: str
    """same, changed, removed or added."""
    old: str
    new: str
    here: bool
    """Whether the run stands there."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What a migration would make of the run, or why it cannot be made."""

    why_not: str
    version: int | None
    step: str = ""
    functions: tuple[str, ...] = ()
    diff: tuple[diffs.Line, ...] = ()
    means: tuple[Meaning, ...] = ()
    plan_hash: str = ""
    given_up: int = 0
    """Waits that end with it."""


def side_by_side(old: WorkflowPlan, new: WorkflowPlan | None, here: str) -> list[Row]:
    """Both plans, step by step; without code that would go on, the old one alone."""
    before, after = _steps(old), _steps(new) if new is not None else {}
    rows: list[Row] = []
    for tag, a, b, c, d in SequenceMatcher(a=list(before), b=list(after), autojunk=False).get_opcodes():
        left, right = list(before)[a:b], list(after)[c:d]
        if tag == "equal":
            for one in left:
                same = before[one] == after[one]
                rows.append(_row("same" if same else "changed", before[one], after[one], one == here))
            continue
        rows += [_row("removed" if new is not None else "same", before[one], "", one == here) for one in left]
        rows += [_row("added", "", after[one], False) for one in right]
    return rows


def ahead(review: Review, run: Run, *, sight: bool) -> Ahead:
    """Work out the migration to the newest version this process has. Writes nothing."""
    try:
        target = registry.workflow(run.workflow, None)
    except WorkflowNotFound as missing:
        return Ahead(why_not=missing.detail, version=None)
    if target.version == run.plan.version:
        return Ahead(why_not=f"the code here has version {target.version}, too, with another plan.", version=None)
    with connection.cursor() as cursor:
        try:
            found = migrating.preview(cursor, run.pk, target)
            plan = guard.plan(cursor, "migrate", run.pk, version=target.version)
        except MigrationRefused as why:
            return Ahead(why_not=why.detail, version=target.version)
    return Ahead(
        why_not="", version=target.version, step=found.step_id,
        functions=tuple(f"{one['name']} ({one['from']} → {one['to']})" for one in found.functions),
        diff=tuple(diffs.lines(state_text(run), found.state)) if sight else (),
        means=tuple(guarding.meanings(plan)), plan_hash=plan.hash,
        given_up=sum(name is None for name in found.waits.values()),
    )  # fmt: skip


def steps_ahead(run: Run) -> list[str]:
    """The steps of the newest version here, where a run may be moved to."""
    try:
        target: WorkflowDefinition = registry.workflow(run.workflow, None)
    except WorkflowNotFound:
        return []
    committed = Checkpoint.objects.filter(run=run, kind__in=["step", "finish"]).values_list("step_id", flat=True)
    done = set(committed) - {run.step_id}
    return [step.id for step in target.steps if step.id not in done]


def state_text(run: Run) -> str:
    """The run's present state, as it is stored."""
    return Checkpoint.objects.filter(run=run, seq=run.state_seq).values_list("state", flat=True).first() or "{}"


def _steps(plan: WorkflowPlan) -> dict[str, str]:
    told = plan.plan if isinstance(plan.plan, dict) else {}
    return {str(one.get("id", "?")): _words(one) for one in told.get("steps", []) if isinstance(one, dict)}


def _words(step: Mapping[str, Any]) -> str:
    version = f" v{step['version']}" if step.get("version", 1) != 1 else ""
    tools = step.get("tools") or {}
    named = tools.items() if isinstance(tools, dict) else [(str(one), "") for one in tools]
    shown = ", ".join(f"{name} ({kind})" if kind else str(name) for name, kind in named)
    return f"{step.get('id', '?')}{version}" + (f": {shown}" if shown else "")


def _row(kind: str, old: str, new: str, here: bool) -> Row:
    return Row(kind=kind, old=old, new=new, here=here)

"""What two deploys did to the runs they found: counted from the record, and from what the other side received."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import connection

from durableops.checkpoints import codec
from durableops.upkeep.drills import facts
from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.promises import check_invariants
from examples.demo.desk_client import DeskClient
from examples.ledger_desk.client import LedgerClient
from examples.rolling.fates import Plan
from examples.rolling.workflows import LOADED, NAME
from runs.models import Checkpoint, Lineage, Review, Run, WorkflowPlan
from runs.states import OPEN

MOST_TOLD = 5
# A position that somebody committed whose worker did not have the code of its plan.
_WRONG_WORKER = """
SELECT c.run_id, c.seq, c.step_id, p.version FROM runs_checkpoint c JOIN runs_worker w ON w.id = c.worker_id
JOIN runs_workflow_plan p ON p.id = c.plan_id
WHERE c.run_id = ANY(%s) AND c.kind IN ('page', 'step', 'finish') AND NOT w.plans @> to_jsonb(c.plan_id)"""


@dataclass(kw_only=True)
class Played:
    """What was played."""

    runs: dict[UUID, Plan] = field(default_factory=dict)
    rejected: set[UUID] = field(default_factory=set)
    """By a reviewer, who let them end."""
    found_in: Counter[str] = field(default_factory=Counter)
    """The states in which the first deploy found them."""

    def note_states(self) -> None:
        """Count the states they are in."""
        for state, paused in Run.objects.filter(pk__in=self.runs).values_list("state", "paused"):
            self.found_in["paused" if paused else state] += 1


def judge(played: Played, checks: Checks, desk: DeskClient | None, ledger: LedgerClient | None) -> dict[str, Any]:
    """Make the checks and return the figures of the report."""
    went = Counter(_what_became_of(run_id) for run_id in played.runs)
    wanted = Counter(_wanted(plan) for plan in played.runs.values())
    checks.equal("each_run_went_the_way_it_was_to_go", dict(went), dict(wanted))
    lost = [str(run.pk) for run in Run.objects.filter(pk__in=played.runs) if not _is_accounted_for(run, played)]
    twice = [told for run_id in played.runs for told in _steps_twice(run_id)]
    sent = _sent_twice(desk, ledger) if desk and ledger else ["nobody was asked"]
    wrong = _wrong_code(list(played.runs))
    for name, found in (("lost", lost), ("steps_run_twice", twice), ("effects_sent_twice", sent),
                        ("read_with_wrong_code", wrong)):  # fmt: skip
        checks.add(name, not found, f"{len(found)} of {len(played.runs)} runs {'; '.join(found[:MOST_TOLD])}".strip())
    needed = WorkflowPlan.objects.filter(workflow=NAME, pk__in=Run.objects.filter(state__in=OPEN).values("plan_id"))
    checks.equal("older_versions_are_drained", sorted(needed.values_list("version", flat=True)), [])
    check_invariants(checks, newest_runs=len(played.runs) or 1)
    figures = {name: went[name] for name in ("continued", "migrated", "reviewed")}
    return {
        "runs": len(played.runs), "found_in": dict(sorted(played.found_in.items())), **figures, "lost": len(lost),
        "steps_run_twice": len(twice), "effects_sent_twice": len(sent), "read_with_wrong_code": len(wrong),
        "summary": f"{len(played.runs)} runs, found {dict(sorted(played.found_in.items()))}: {figures}",
    }  # fmt: skip


def _wanted(plan: Plan) -> str:
    return {"continues": "continued", "migrates": "migrated"}.get(plan.fate, "reviewed")


def _what_became_of(run_id: UUID) -> str:
    if Review.objects.filter(run=run_id).exclude(closed_as="resolved").exists():
        return "reviewed"
    return "migrated" if Lineage.objects.filter(run=run_id, kind="migrate").exists() else "continued"


def _is_accounted_for(run: Run, played: Played) -> bool:
    return run.state == ("cancelled" if run.pk in played.rejected else "succeeded")


def _steps_twice(run_id: UUID) -> list[str]:
    """Steps that were committed twice, under whichever name, or that ran twice by what they noted themselves."""
    newest = Checkpoint.objects.filter(run=run_id).exclude(state=None).order_by("-seq").values_list("state", flat=True)
    noted = [text.partition("@")[0] for text in codec.loads(newest[0] or "{}")["trail"]]
    found = []
    for where, steps in (("committed", facts.steps_committed(run_id)), ("noted", noted)):
        counted = Counter(LOADED[0] if each in LOADED else each for each in steps)
        found += [f"{each} of {run_id} was {where} {n} times" for each, n in counted.items() if n > 1]
    return found


def _sent_twice(desk: DeskClient, ledger: LedgerClient) -> list[str]:
    asked = Counter(request.reference for request in desk.requests())
    booked = Counter(entry.text for entry in ledger.entries())
    return [f"{text} was sent {n} times" for text, n in (asked + booked).items() if n > 1]


def _wrong_code(runs: list[UUID]) -> list[str]:
    """Positions of another worker's plan, and steps that ran in other code than that of their checkpoint."""
    with connection.cursor() as cursor:
        cursor.execute(_WRONG_WORKER, [runs])
        found = [f"{step} of {run} (checkpoint {seq}) ran without v{v}" for run, seq, step, v in cursor.fetchall()]
    rows = Checkpoint.objects.filter(run__in=runs, kind__in=["step", "finish"]).exclude(state=None)
    for run_id, step_id, version, state in rows.values_list("run_id", "step_id", "plan__version", "state"):
        noted = codec.loads(state or "{}")["trail"][-1]
        if noted != f"{step_id}@{version}":
            found.append(f"{step_id} of {run_id} is of v{version} and noted {noted}")
    return found

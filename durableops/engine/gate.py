"""What a deploy of this process's code would do to the runs that are open: asked before it, or beside it. Only reads.

Each open run is put under one verdict: it goes on as it is, it is migrated without anybody, its migration would be
refused, or a person has to decide. Nothing is assumed of runs that cannot be read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.compatibility import Continue, RecordedPlan, compare
from durableops.engine import migrating
from durableops.engine.database import Database
from durableops.engine.resuming import PLAN, recorded_plan
from durableops.errors import MigrationRefused
from runs.offers import NEEDED, plans_where

CONTINUE, MIGRATE, FAIL, REVIEW, PINNED = "continue", "migrate", "fail", "review", "pinned"
VERDICTS = (CONTINUE, MIGRATE, FAIL, REVIEW, PINNED)
MOST_SHOWN = 5

# Which plans open runs have, by one descent of the index for each.
_PLANS = f"""
WITH RECURSIVE {plans_where(NEEDED, name="needed")}
SELECT plan_id FROM needed WHERE plan_id IS NOT NULL"""
_RUNS = """
SELECT r.id, r.step_id, r.pinned, (
    SELECT coalesce(jsonb_agg(jsonb_build_array(w.kind, w.name)), '[]') FROM runs_wait w
    WHERE w.run_id = r.id AND w.lineage = r.lineage AND w.step_id = r.step_id AND w.state IN ('open', 'answered')
      AND w.clock = '')
FROM runs_run r WHERE r.plan_id = %s AND r.state IN ('queued', 'running', 'waiting', 'in_doubt', 'in_review')
AND r.id > %s ORDER BY r.id LIMIT 500"""
_SOURCES = "SELECT array_agg(fingerprint) FROM runs_plan_source WHERE plan_id = %s"
_SAME = """
SELECT id FROM runs_workflow_plan WHERE workflow = %s AND version = %s AND schema_version = %s AND schema_hash = %s
AND plan_hash = %s"""


@dataclass(kw_only=True)
class OfPlan:
    """The open runs of one recorded plan."""

    plan_id: int
    workflow: str
    version: int
    target: int | None
    """The version of this code that would go on with them; None where it has none."""
    policy: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, str]] = field(default_factory=list)

    def note(self, verdict: str, run_id: object, why: str = "") -> None:
        self.counts[verdict] += 1
        if why and len(self.samples) < MOST_SHOWN:
            self.samples.append({"run": str(run_id), "verdict": verdict, "why": why})

    def as_json(self) -> dict[str, Any]:
        return {
            "workflow": self.workflow,
            "version": self.version,
            "plan": self.plan_id,
            "target": self.target,
            "policy": self.policy,
            "open_runs": self.counts.total(),
            **{verdict: self.counts[verdict] for verdict in VERDICTS},
            "why": self.samples,
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """What would become of every open run."""

    plans: list[OfPlan]
    sources: list[dict[str, Any]]
    """Versions whose code says something else than it did, under the same version and plan."""

    def total(self, verdict: str) -> int:
        return sum(plan.counts[verdict] for plan in self.plans)

    def as_json(self) -> dict[str, Any]:
        return {
            "open_runs": sum(plan.counts.total() for plan in self.plans),
            **{verdict: self.total(verdict) for verdict in VERDICTS},
            "plans": [plan.as_json() for plan in self.plans],
            "source_changed": self.sources,
        }


def examine(database: Database) -> Report:
    """Put every open run under a verdict. Raises ConnectionLost."""
    plans = [_of_plan(database, plan_id) for (plan_id,) in database.fetch(_PLANS)]
    return Report(plans=sorted(plans, key=lambda p: (p.workflow, p.version, p.plan_id)), sources=_sources(database))


def _of_plan(database: Database, plan_id: int) -> OfPlan:
    recorded = recorded_plan(database.fetch(PLAN, [plan_id])[0])
    versions = registry.versions(recorded.workflow)
    version = recorded.version if recorded.version in versions else versions[-1] if versions else None
    target = None if version is None else registry.workflow(recorded.workflow, version)
    found = OfPlan(
        plan_id=plan_id, workflow=recorded.workflow, version=recorded.version, target=version,
        policy="" if target is None else target.migrate,
    )  # fmt: skip
    after: object = migrating.NO_RUN
    while rows := database.fetch(_RUNS, [plan_id, after]):
        for run_id, step_id, pinned, awaited in rows:
            _judge(database, found, recorded, target, (run_id, step_id, pinned, [tuple(one) for one in awaited]))
        after = rows[-1][0]
    _by_policy(found)
    return found


def _judge(
    database: Database, found: OfPlan, recorded: RecordedPlan, target: WorkflowDefinition | None, run: tuple[Any, ...]
) -> None:
    run_id, step_id, pinned, awaited = run
    present = None if target is None else RecordedPlan.of(target)
    verdict = compare(recorded, present, at_step=step_id, awaited=awaited)
    if isinstance(verdict, Continue):
        found.note(CONTINUE, run_id)
    elif pinned:
        found.note(PINNED, run_id, "a person keeps it on its version: keep a worker that has it.")
    elif target is None or not registry.chain(target.name, recorded.version, target.version):
        found.note(REVIEW, run_id, verdict.reason)
    else:
        try:
            with database.cursor() as cursor:
                migrating.preview(cursor, run_id, target)
        except MigrationRefused as refused:
            found.note(FAIL, run_id, refused.detail)
        else:
            found.note(MIGRATE, run_id)


def _by_policy(found: OfPlan) -> None:
    """What could be migrated is left to a person where the policy says so."""
    waits = found.policy == "reviewed" or (found.policy == "if_clean" and found.counts[FAIL] > 0)
    if waits and found.counts[MIGRATE]:
        found.counts[REVIEW] += found.counts.pop(MIGRATE)
        found.samples.append(
            {"run": "", "verdict": REVIEW, "why": f"the policy {found.policy!r} leaves clean migrations to a person."}
        )


def _sources(database: Database) -> list[dict[str, Any]]:
    changed = []
    for definition in registry.workflows():
        same = database.fetch(
            _SAME,
            [
                definition.name,
                definition.version,
                definition.schema_version,
                definition.schema_hash,
                definition.plan_hash,
            ],
        )
        seen = {one for (plan_id,) in same for one in (database.fetch(_SOURCES, [plan_id])[0][0] or ())}
        if seen and definition.source_fingerprint not in seen:
            changed.append({"workflow": definition.name, "version": definition.version, "plans": [p for (p,) in same]})
    return changed

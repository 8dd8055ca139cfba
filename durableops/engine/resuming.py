"""Whether a claimed run goes on under the code of this process, is migrated first, or is parked for a person."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.authoring.migrated import Position
from durableops.checkpoints import upgrades
from durableops.checkpoints.compatibility import Continue, Park, RecordedPlan, compare
from durableops.checkpoints.made_plans import MadePlan
from durableops.checkpoints.made_plans import compare as compare_made
from durableops.engine import bell, findings, made_plans, migrating
from durableops.engine.database import Database
from durableops.engine.family import close_waits
from durableops.engine.plans import plan_id
from durableops.errors import WorkflowNotFound
from runs.claiming import Claimed
from runs.transitions import fire

logger = logging.getLogger("durableops.resuming")

PLAN = """
SELECT workflow, version, schema_version, schema_hash, plan_hash, plan, schema, waits
FROM runs_workflow_plan WHERE id = %s"""
_INPUT = """
SELECT c.state, p.version FROM runs_checkpoint c JOIN runs_workflow_plan p ON p.id = c.plan_id
WHERE c.run_id = %s AND c.seq = 0"""
_AWAITED = """
SELECT kind, name FROM runs_wait
WHERE run_id = %s AND lineage = %s AND step_id = %s AND state IN ('open', 'answered') AND clock = ''
ORDER BY id"""


def recorded_plan(row: tuple[Any, ...]) -> RecordedPlan:
    """A stored plan, from the columns of `PLAN`."""
    names = ("workflow", "version", "schema_version", "schema_hash", "plan_hash", "plan", "schema", "waits")
    return RecordedPlan(**dict(zip(names, row, strict=True)))


def definition_for(claimed: Claimed) -> WorkflowDefinition | None:
    """The code of the recorded version; else the newest, which would take the run over; else None."""
    for version in (claimed.plan_version, None):
        try:
            return registry.workflow(claimed.workflow, version)
        except WorkflowNotFound:
            continue
    return None


def decide(database: Database, claimed: Claimed) -> tuple[WorkflowDefinition, MadePlan | None] | Park:
    """The definition that goes on with the run and the plan the run made for itself, or why none may.

    What was recorded is read only where the hashes differ, and what the run waits for only where its code waits for
    something else than it did.
    """
    present = definition_for(claimed)
    if present is not None and _means_the_same(present, claimed):
        same_waits = claimed.waits_hash in ("", present.waits_hash)
        if same_waits and any(step.id == claimed.step_id for step in present.steps):
            return _with_its_plan(database, claimed, present)
    recorded = recorded_plan(database.read(PLAN, [claimed.plan_id])[0])
    verdict = compare(
        recorded,
        None if present is None else RecordedPlan.of(present),
        at_step=claimed.step_id,
        awaited=database.read(_AWAITED, [claimed.run_id, claimed.lineage, claimed.step_id]),
    )
    if isinstance(verdict, Continue):
        assert present is not None
        return _with_its_plan(database, claimed, present)
    return verdict


def _with_its_plan(
    database: Database, claimed: Claimed, present: WorkflowDefinition
) -> tuple[WorkflowDefinition, MadePlan | None] | Park:
    plan = made_plans.in_force(database, claimed.run_id) if claimed.own_plan else None
    verdict = Continue() if plan is None else compare_made(plan, present, at_step=claimed.step_id)
    return verdict if isinstance(verdict, Park) else (present, plan)


def _means_the_same(present: WorkflowDefinition, claimed: Claimed) -> bool:
    return (
        present.version == claimed.plan_version
        and present.plan_hash == claimed.plan_hash
        and present.schema_hash == claimed.schema_hash
        and present.schema_version == claimed.schema_version
    )


def input_of(database: Database, run_id: UUID, definition: WorkflowDefinition) -> str:
    """What a run was started with, as JSON text; brought forward by the migrations if it is of an older version.

    Raises MigrationRefused.
    """
    text, version = database.read(_INPUT, [run_id])[0]
    chain = registry.chain(definition.name, version, definition.version)
    return upgrades.state_of(text, chain, position=Position(step=definition.steps[0].id)) if chain else str(text)


def migrate_or_park(database: Database, claimed: Claimed, found: Park) -> None:
    """Let go of a run that does not fit: moved to this code's version by its policy, or left to a person."""
    if not claimed.cancel_requested:
        remaining = migrating.by_policy(database, claimed, definition_for(claimed), found)
        if remaining is None:
            bell.ring()
            return
        found = remaining
    park(database, claimed, found)


def park(database: Database, claimed: Claimed, found: Park) -> None:
    """Let go of a run that a person has to decide about. Nothing of it is touched. Raises TransitionRefused."""
    event, reason = (
        ("stop", "cancelled before it could be read") if claimed.cancel_requested else ("park", found.reason)
    )
    present = definition_for(claimed)
    with database.transaction() as cursor:
        fire(
            event,
            claimed.run_id,
            using=cursor,
            fence=claimed.fence,
            reason=reason,
            data={"code": found.reason_code, "differences": [d.as_json() for d in found.differences]},
            sets={"error_class": "", "error_message": reason, "error_fingerprint": found.reason_code},
        )
        if event == "stop":
            close_waits(cursor, [claimed.run_id])
            findings.close(cursor, [claimed.run_id], closed_as="ended", by=findings.ENGINE, why=reason)
        else:
            about = findings.About(
                run_id=claimed.run_id,
                tenant_id=claimed.tenant_id,
                workflow=claimed.workflow,
                plan_id=claimed.plan_id,
                target_id=None if present is None else plan_id(cursor, present),
                seq=claimed.head_seq,
            )
            findings.record(cursor, about, found)
    logger.warning("run %s is parked for review: %s", claimed.run_id, reason)

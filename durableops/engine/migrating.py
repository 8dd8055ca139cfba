"""Moving a run to a newer version of its workflow, and taking that back: what is read, what is written, who may.

What the run becomes is worked out by `checkpoints.upgrades`; the new line of positions is written by `lineages`. A
worker does it by the workflow's policy for a run it has claimed, a person for one that is in nobody's hand.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.compatibility import Park
from durableops.checkpoints.made_plans import carried
from durableops.checkpoints.upgrades import SeenEffect, SeenWait, Snapshot, Upgraded, reshaped, upgrade
from durableops.engine import findings, made_plans
from durableops.engine.database import Database
from durableops.engine.lineages import Begun, NewLine, begin
from durableops.engine.plans import plan_id
from durableops.engine.waking import db_now
from durableops.errors import MigrationRefused
from durableops.masking import mask, unmasked
from runs.claiming import Claimed
from runs.models.effect import UNSETTLED
from runs.transitions import Cursor, fire, record_event

logger = logging.getLogger("durableops.migrating")

_UNSETTLED = ", ".join(f"'{state}'" for state in UNSETTLED)
_RUN = """
SELECT r.id, r.workflow, p.version, s.state, r.step_id, r.cursor::text, r.own_plan FROM runs_run r
JOIN runs_workflow_plan p ON p.id = r.plan_id
JOIN runs_checkpoint s ON s.run_id = r.id AND s.seq = r.state_seq
WHERE r.id = ANY(%s)"""
_WAITS = """
SELECT w.run_id, w.id, w.kind, w.name, w.state
FROM runs_run r JOIN runs_wait w ON w.run_id = r.id AND w.lineage = r.lineage AND w.step_id = r.step_id
WHERE r.id = ANY(%s) AND w.state IN ('open', 'answered', 'expired') AND w.clock = '' ORDER BY w.id"""
# One for all alike. Calls before the newest checkpoint count: a step that has pages is entered from its top again.
# Messages of the outbox go out by themselves, whatever becomes of the code that wrote them.
_EFFECTS = f"""
SELECT e.run_id, min(e.id), e.step_id, e.tool, e.safety, e.state IN ({_UNSETTLED}) AND e.safety <> 'outbox'
FROM runs_effect e WHERE e.run_id = ANY(%s) AND e.scope = 'run' AND e.state <> 'withdrawn' AND NOT e.left_behind
GROUP BY 1, 3, 4, 5, 6 ORDER BY 2"""
_TAKE = "SELECT 1 FROM runs_run WHERE id = %s AND fence = %s AND state = 'running' FOR NO KEY UPDATE"
_TAKEN_BACK = "SELECT EXISTS (SELECT 1 FROM runs_lineage WHERE run_id = %s AND kind = 'revert' AND plan_id = %s)"
_OPEN_OF_PLAN = """
SELECT r.id FROM runs_run r WHERE r.plan_id = %s AND NOT r.pinned AND r.id > %s
AND r.state IN ('queued', 'waiting', 'in_doubt', 'in_review') ORDER BY r.id LIMIT 500"""
CLEAN_SECONDS = 60.0
NO_RUN = UUID(int=0)

_clean: dict[tuple[int, int, int], tuple[float, str]] = {}
"""(Recorded plan, code's stamp, version) to when all its runs were previewed, and what stood in the way."""


def snapshots(cursor: Cursor, run_ids: Sequence[UUID]) -> dict[UUID, tuple[str, Snapshot]]:
    """What a migration of each of these runs begins from, beside the name of its workflow."""
    params = [list(run_ids)]
    cursor.execute(_RUN, params)
    rows = cursor.fetchall()
    here = {row[0]: row[4] for row in rows}
    waits: dict[UUID, list[SeenWait]] = defaultdict(list)
    effects: dict[UUID, list[SeenEffect]] = defaultdict(list)
    committed: dict[UUID, list[str]] = defaultdict(list)
    cursor.execute(_WAITS, params)
    for run_id, pk, kind, name, state in cursor.fetchall():
        waits[run_id].append(SeenWait(id=pk, kind=kind, name=name, state=state))
    cursor.execute(made_plans.COMMITTED, params)
    for run_id, step_id in cursor.fetchall():
        committed[run_id].append(step_id)
    cursor.execute(_EFFECTS, params)
    for run_id, pk, step_id, tool, safety, unsettled in cursor.fetchall():
        # Where a person went back, steps that lie ahead have a past as well.
        over = step_id in committed[run_id] and step_id != here[run_id]
        seen_effect = SeenEffect(
            id=pk, step_id=step_id, tool=tool, safety=safety, unsettled=unsettled, may_be_asked=not over
        )
        effects[run_id].append(seen_effect)
    found: dict[UUID, tuple[str, Snapshot]] = {}
    for run_id, workflow, version, state, step_id, position, own_plan in rows:
        plan = made_plans.at_checkpoint(cursor, run_id) if own_plan else None
        seen = Snapshot(
            version=version, state=state, step_id=step_id, waits=tuple(waits[run_id]), effects=tuple(effects[run_id]),
            cursor=None if position is None else json.loads(position), committed=tuple(committed[run_id]),
            planned=None if plan is None else carried(plan.steps, at=step_id),
        )  # fmt: skip
        found[run_id] = (workflow, seen)
    return found


def snapshot(cursor: Cursor, run_id: UUID) -> Snapshot:
    """What a migration of this run begins from."""
    return snapshots(cursor, [run_id])[run_id][1]


def previews(
    cursor: Cursor, run_ids: Sequence[UUID], target: WorkflowDefinition
) -> dict[UUID, Upgraded | MigrationRefused]:  # fmt: skip
    """What each of these runs would be under `target`, or why it cannot be. Writes nothing."""
    found: dict[UUID, Upgraded | MigrationRefused] = {}
    for run_id, (workflow, seen) in snapshots(cursor, run_ids).items():
        try:
            if workflow != target.name:
                raise MigrationRefused(f"it is a run of {workflow!r}, not of {target.name!r}.")
            found[run_id] = upgrade(seen, registry.chain(target.name, seen.version, target.version), target)
        except MigrationRefused as why:
            found[run_id] = why
    return found


def preview(cursor: Cursor, run_id: UUID, target: WorkflowDefinition) -> Upgraded:
    """What the run would be under `target`. Writes nothing. Raises MigrationRefused."""
    seen = snapshot(cursor, run_id)
    return upgrade(seen, registry.chain(target.name, seen.version, target.version), target)


def reshape(
    cursor: Cursor, run_id: UUID, target: WorkflowDefinition, *, state: Mapping[str, Any] | None, step_id: str
) -> Upgraded:
    """What the run would be with this state at this step, by a person's word. Writes nothing. Raises MigrationRefused.

    None leaves the state; what stands in it as a mask keeps what it hides.
    """
    seen = snapshot(cursor, run_id)
    recorded = json.loads(seen.state)
    given = recorded if state is None else unmasked(dict(state), recorded, mask(recorded))
    return reshaped(seen, target, state=given, step_id=step_id or seen.step_id)


def begin_line(
    cursor: Cursor, run_id: UUID, target: WorkflowDefinition, found: Upgraded, *, kind: str, actor: str, reason: str
) -> Begun:
    """Begin the line in which the run is what was worked out, and close its finding. Its row is locked."""
    line = NewLine(
        kind=kind,
        plan_id=plan_id(cursor, target),
        state=found.state,
        step_id=found.step_id,
        cursor=found.cursor,
        isolated=target.is_isolated(found.step_id),
        resource=target.step(found.step_id).uses,
        actor=actor,
        reason=reason,
        steps=found.steps,
        waits=found.waits,
        decisions=found.decisions,
        effects=found.effects,
        functions=found.functions,
        planned=found.planned,
    )
    begun = begin(cursor, run_id, line)
    closed_as = {"migrate": "migrated", "edit": "edited", "move": "moved"}[kind]
    findings.close(cursor, [run_id], closed_as=closed_as, by=actor, why=reason)
    return begun


def apply(cursor: Cursor, run_id: UUID, target: WorkflowDefinition, *, actor: str, reason: str) -> Begun:
    """Migrate a run whose row is locked in this transaction. Raises MigrationRefused: then nothing was written."""
    found = preview(cursor, run_id, target)
    return begin_line(cursor, run_id, target, found, kind="migrate", actor=actor, reason=reason)


def told(target: WorkflowDefinition, begun: Begun, seen_version: int) -> dict[str, Any]:
    """What the timeline says of a migration."""
    return {"from": seen_version, "to": target.version, "lineage": begun.number, "checkpoint": begun.seq}


def by_policy(database: Database, claimed: Claimed, target: WorkflowDefinition | None, found: Park) -> Park | None:
    """Migrate a claimed run that does not fit, if its workflow's policy lets a worker do that.

    None when it was migrated and given back to the queue, or is not ours any more; else what a person is to decide.
    """
    if target is None or found.reason_code != "version_changed" or target.version <= claimed.plan_version:
        return found
    if not registry.chain(target.name, claimed.plan_version, target.version):
        return found
    why_not = _why_not(database, claimed, target)
    if why_not:
        return Park(reason_code="needs_review", reason=why_not, differences=found.differences)
    reason = f"by the policy of {target.name!r} version {target.version} ({target.migrate})"
    try:
        with database.transaction() as cursor:
            cursor.execute(_TAKE, [claimed.run_id, claimed.fence])
            if cursor.fetchone() is None:
                return None
            begun = apply(cursor, claimed.run_id, target, actor=findings.ENGINE, reason=reason)
            data = told(target, begun, claimed.plan_version)
            record_event(
                cursor, claimed.run_id, "migrate", actor=findings.ENGINE, reason=reason, step_id=claimed.step_id,
                fence=claimed.fence, data=data,
            )  # fmt: skip
            sets = {
                "wake_cause": "migrated",
                "wake_detail": f"migrated from version {claimed.plan_version} to {target.version}",
                "woken_at": db_now(cursor),
                "lost_at": None,
            }
            fire("hand_back", claimed.run_id, using=cursor, fence=claimed.fence, reason=reason, data=data, sets=sets)
    except MigrationRefused as refused:
        return Park(reason_code="migration_refused", reason=refused.detail, differences=found.differences)
    logger.info("run %s was migrated to version %s", claimed.run_id, target.version)
    return None


def _why_not(database: Database, claimed: Claimed, target: WorkflowDefinition) -> str:
    """Why a person has to approve it, if so."""
    versions = f"{claimed.plan_version} to {target.version}"
    if target.migrate == "reviewed":
        return f"each migration of {target.name!r} from version {versions} is to be approved by a person."
    if database.read(_TAKEN_BACK, [claimed.run_id, claimed.plan_id])[0][0]:
        return f"a person took its migration from version {versions} back; whether it is tried again is theirs to say."
    if target.migrate == "if_clean" and (first := unclean(database, claimed.plan_id, target)):
        return f"not every run of this version can be migrated from {versions}, so each is to be approved: {first}"
    return ""


def unclean(database: Database, recorded_plan_id: int, target: WorkflowDefinition) -> str:
    """What stands in the way of migrating all open runs of a plan; empty when nothing does. Remembered for a minute."""
    key = (recorded_plan_id, registry.stamp(), target.version)
    known = _clean.get(key)
    if known is not None and time.monotonic() - known[0] < CLEAN_SECONDS:
        return known[1]
    _clean[key] = (time.monotonic(), _first_refusal(database, recorded_plan_id, target))
    return _clean[key][1]


def _first_refusal(database: Database, recorded_plan_id: int, target: WorkflowDefinition) -> str:
    after = NO_RUN
    while rows := database.read(_OPEN_OF_PLAN, [recorded_plan_id, after]):
        for (run_id,) in rows:
            try:
                with database.cursor() as cursor:
                    preview(cursor, run_id, target)
            except MigrationRefused as refused:
                return f"run {run_id}: {refused.detail}"
        after = rows[-1][0]
    return ""

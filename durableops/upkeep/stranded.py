"""Runs that a deploy left behind: nobody has their plan any more, and a person has to decide. Found while they wait.

A run that waits would say so only when it is woken, days after the deploy. So what it stands on is compared with
what living workers have, from the stored plans alone, and a finding is opened; nothing of the run is touched. When
workers have its plan again, the finding is closed.
"""

from __future__ import annotations

from typing import Any

from durableops.authoring import registry
from durableops.checkpoints.compatibility import Continue, Park, compare
from durableops.conf import get_conf
from durableops.engine import findings
from durableops.engine.database import Database
from durableops.engine.resuming import PLAN, recorded_plan
from runs.offers import NEEDED, offered, plans_where

BATCH = 200
_OPEN = "('queued', 'waiting', 'in_doubt')"
# The plans of open runs, by one descent of the index for each, that no living worker has or had a moment ago; each with
# the newest plan of its workflow that some living worker has.
_PLANS = f"""
WITH RECURSIVE {plans_where(NEEDED, name="needed")}
SELECT n.plan_id, (
    SELECT m.id FROM runs_workflow_plan o
    JOIN runs_workflow_plan m ON m.workflow = o.workflow AND m.version >= o.version AND m.id <> o.id
    WHERE o.id = n.plan_id AND {offered("m.id")}
    ORDER BY m.version DESC, m.first_seen_at DESC LIMIT 1)
FROM needed n
WHERE n.plan_id IS NOT NULL AND EXISTS (SELECT 1 FROM runs_worker w WHERE w.ended_at IS NULL)
  AND NOT {offered("n.plan_id")} AND NOT EXISTS (
    SELECT 1 FROM runs_worker w
    WHERE w.ended_at > now() - %s * interval '1 second' AND w.plans @> to_jsonb(n.plan_id))"""
_RUNS = f"""
SELECT r.id, r.tenant_id, r.workflow, r.head_seq, r.step_id, (
    SELECT coalesce(jsonb_agg(jsonb_build_array(w.kind, w.name)), '[]') FROM runs_wait w
    WHERE w.run_id = r.id AND w.lineage = r.lineage AND w.step_id = r.step_id AND w.state IN ('open', 'answered')
      AND w.clock = '')
FROM runs_run r WHERE r.plan_id = %s AND r.state IN {_OPEN} AND NOT r.pinned AND r.state_since < now() - %s
    * interval '1 second' AND NOT EXISTS (SELECT 1 FROM runs_review v WHERE v.run_id = r.id AND v.closed_at IS NULL)
ORDER BY r.id LIMIT %s"""
_RESOLVED = f"""
SELECT v.run_id FROM runs_review v JOIN runs_run r ON r.id = v.run_id
WHERE v.closed_at IS NULL AND r.state IN {_OPEN} AND {offered("r.plan_id")} ORDER BY v.id LIMIT %s"""


def find(database: Database) -> int:
    """One pass. Returns how many findings were opened or closed."""
    patience = get_conf().version_patience_seconds
    changed = sum(_of_plan(database, plan, target) for plan, target in database.fetch(_PLANS, [patience]))
    resolved = [run_id for (run_id,) in database.fetch(_RESOLVED, [BATCH])]
    if resolved:
        with database.cursor() as cursor:
            why = "workers have its version again"
            findings.close(cursor, resolved, closed_as="resolved", by=findings.ENGINE, why=why)
    return changed + len(resolved)


def _of_plan(database: Database, plan_id: int, target_id: int | None) -> int:
    recorded = recorded_plan(database.fetch(PLAN, [plan_id])[0])
    target = None if target_id is None else recorded_plan(database.fetch(PLAN, [target_id])[0])
    if target is not None:
        if target.version not in registry.versions(recorded.workflow):
            return 0  # whether workers migrate it, only code of that version can tell: a newer upkeep will
        policy = registry.workflow(recorded.workflow, target.version).migrate
        if policy != "reviewed" and registry.chain(recorded.workflow, recorded.version, target.version):
            return 0  # decided when it is taken, by its policy
    opened = 0
    for row in database.fetch(_RUNS, [plan_id, get_conf().version_patience_seconds, BATCH]):
        opened += _note(database, row, plan_id, target_id, recorded, target)
    return opened


def _note(
    database: Database, row: tuple[Any, ...], plan_id: int, target_id: int | None, recorded: Any, target: Any
) -> bool:
    run_id, tenant_id, workflow, seq, step_id, awaited = row
    verdict = compare(recorded, target, at_step=step_id, awaited=[(kind, name) for kind, name in awaited])
    if isinstance(verdict, Continue):
        return False
    assert isinstance(verdict, Park)
    about = findings.About(
        run_id=run_id, tenant_id=tenant_id, workflow=workflow, plan_id=plan_id, target_id=target_id, seq=seq
    )
    with database.cursor() as cursor:
        return findings.record(cursor, about, verdict)

"""Plans that runs make for themselves, as they are stored: `run.replan`, which one is in force, and bringing one along.

One is committed with the checkpoint of the step that made it and holds from there on. Going back behind that
checkpoint leaves it behind; a migration, an edit or a move brings it along as a new version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from durableops.checkpoints.failures import safe_text
from durableops.checkpoints.made_plans import MadePlan, made
from durableops.engine.checks import check_may_go_on
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Logic
from durableops.masking import mask_text
from runs.fenced import MadePlanRow
from runs.transitions import Cursor

WHY_CHARACTERS = 1000
# A line that begins before a plan's checkpoint leaves the plan behind, unless the checkpoint asked for is older than
# that line.
_IN_FORCE = """
SELECT p.number, p.steps::text, p.plan::text, p.plan_hash FROM runs_made_plan p
JOIN runs_run r ON r.id = p.run_id
JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = coalesce(%(seq)s, r.head_seq)
WHERE p.run_id = %(run)s AND p.seq <= c.seq AND NOT EXISTS (
    SELECT 1 FROM runs_lineage l
    WHERE l.run_id = p.run_id AND l.number > p.lineage AND l.number <= c.lineage AND p.seq > l.from_seq)
ORDER BY p.seq DESC LIMIT 1"""
COMMITTED = """
SELECT DISTINCT c.run_id, c.step_id FROM runs_checkpoint c
WHERE c.run_id = ANY(%s) AND c.kind IN ('step', 'finish') AND NOT EXISTS (
    SELECT 1 FROM runs_lineage l WHERE l.run_id = c.run_id AND l.number > c.lineage AND c.seq > l.from_seq)"""
"""Ids of the committed steps of runs. What a person went back behind runs again, in the line that began then."""
_BRING = """
INSERT INTO runs_made_plan (run_id, number, lineage, seq, step_id, steps, plan, plan_hash, why, actor, fence, at)
SELECT r.id, (SELECT coalesce(max(p.number), 0) + 1 FROM runs_made_plan p WHERE p.run_id = r.id), r.lineage,
    r.head_seq, '', %(steps)s::jsonb, %(plan)s::jsonb, %(hash)s, %(why)s, %(actor)s, r.fence, now()
FROM runs_run r WHERE r.id = %(run)s"""
_HAS = "UPDATE runs_run SET own_plan = true WHERE id = %s AND NOT own_plan"


def replan(hand: Hand, steps: Iterable[Any], *, why: str) -> Logic[None]:
    """Say which steps follow the present one. Nothing is written before its commit; the last word of an entry holds."""
    check_may_go_on(hand)
    done = yield Ask(lambda database: [row[1] for row in database.read(COMMITTED, [[hand.run_id]])])
    found = made(hand.definition, steps, at=hand.step.id, done=done)
    hand.replan, hand.replan_why = found, safe_text(mask_text(str(why)), limit=WHY_CHARACTERS)


def row_of(hand: Hand) -> MadePlanRow | None:
    """What the present step's checkpoint commits of it."""
    if hand.replan is None:
        return None
    plan = hand.replan
    return MadePlanRow(
        steps=json.dumps(plan.steps), plan=json.dumps(plan.plan), plan_hash=plan.plan_hash, why=hand.replan_why
    )


def in_force(database: Database, run_id: UUID) -> MadePlan | None:
    """The plan that holds for a run where it stands; None for the declared one."""
    return _plan(database.read(_IN_FORCE, {"run": run_id, "seq": None}))


def at_checkpoint(cursor: Cursor, run_id: UUID, seq: int | None = None) -> MadePlan | None:
    """The plan that held at a checkpoint, by default the newest; None for the declared one."""
    cursor.execute(_IN_FORCE, {"run": run_id, "seq": seq})
    return _plan(cursor.fetchall())


def bring(cursor: Cursor, run_id: UUID, plan: MadePlan, *, actor: str, why: str) -> None:
    """Store a plan as the newest version, in force from the run's newest checkpoint. Its row is locked."""
    cursor.execute(
        _BRING,
        {
            "run": run_id,
            "steps": json.dumps(plan.steps),
            "plan": json.dumps(plan.plan),
            "hash": plan.plan_hash,
            "why": why[:WHY_CHARACTERS],
            "actor": actor[:200],
        },
    )
    cursor.execute(_HAS, [run_id])


def _plan(rows: list[tuple[Any, ...]]) -> MadePlan | None:
    if not rows:
        return None
    [(number, steps, plan, plan_hash)] = rows
    return MadePlan(number=number, steps=tuple(json.loads(steps)), plan=json.loads(plan), plan_hash=plan_hash)

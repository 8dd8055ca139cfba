"""Beginning a new line of a run's positions: its checkpoint, what goes over into it, and where it came from.

Everything in one transaction with the run's row locked, for a run that is in nobody's hand or in the caller's. A
migration, an edit, a move and the taking back of one of these differ only in what they ask for here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from durableops.checkpoints.made_plans import MadePlan
from durableops.effects.idempotency import slot_of
from durableops.engine import made_plans
from runs.transitions import Cursor

_RUN = """
SELECT r.lineage, r.head_seq, r.state_seq, r.plan_id, r.step_id, r.cursor, r.fence, h.effects_through
FROM runs_run r JOIN runs_checkpoint h ON h.run_id = r.id AND h.seq = r.head_seq WHERE r.id = %s"""
_CHECKPOINT = """
INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, cursor, state, state_seq,
    output_hash, effects_through, fence, entry, attempt, at)
VALUES (%(run)s, %(seq)s, %(lineage)s, %(kind)s, '', %(step)s, %(plan)s, %(cursor)s::jsonb, %(state)s, %(seq)s, '',
    %(effects)s, %(fence)s, 0, 0, now())"""
_MOVE_RUN = """
UPDATE runs_run SET lineage = %(lineage)s, head_seq = %(seq)s, state_seq = %(seq)s, plan_id = %(plan)s,
    step_id = %(step)s, cursor = %(cursor)s::jsonb, step_attempts = 0, recoveries = 0, isolated = %(isolated)s,
    resource = %(resource)s, error_class = '', error_message = '', error_fingerprint = ''
WHERE id = %(run)s"""
_LINEAGE = """
INSERT INTO runs_lineage (run_id, number, kind, from_seq, seq, from_plan_id, plan_id, functions, moved, reverts, actor,
    reason, at)
VALUES (%(run)s, %(lineage)s, %(kind)s, %(from_seq)s, %(seq)s, %(from_plan)s, %(plan)s, %(functions)s::jsonb,
    %(moved)s::jsonb, %(reverts)s, %(actor)s, %(reason)s, now())"""
_WAIT = "UPDATE runs_wait SET lineage = %s, step_id = %s, name = %s WHERE id = %s RETURNING id"
_GIVE_UP_WAIT = """
UPDATE runs_wait SET state = 'cancelled', answered_at = coalesce(answered_at, now()), due_at = NULL
WHERE id = %s AND state = 'open'"""
_EFFECTS = """
SELECT id, step_id, tool, resource, request_hash, author_key, encode(slot, 'hex') FROM runs_effect
WHERE run_id = %s AND scope = 'run' AND step_id = ANY(%s) AND NOT left_behind ORDER BY id FOR NO KEY UPDATE"""
_EFFECT = """
UPDATE runs_effect SET step_id = %s, tool = %s, slot = decode(%s, 'hex'), left_behind = %s WHERE id = %s"""
_DECISIONS = "SELECT id, step_id, name FROM runs_decision WHERE run_id = %s AND step_id = ANY(%s) ORDER BY id"
_DECISION = "UPDATE runs_decision SET step_id = %s, name = %s WHERE id = %s"
# Lets slots follow the steps and tools they belong to, for this transaction only; keys and outcomes stay guarded.
_LET_SLOTS_FOLLOW = "SELECT set_config('durableops.lineage', 'on', true)"


@dataclass(frozen=True, kw_only=True)
class NewLine:
    """What a line begins with."""

    kind: str
    plan_id: int
    state: str
    step_id: str
    cursor: Any
    isolated: bool
    resource: str
    actor: str
    reason: str
    steps: Mapping[str, str] = field(default_factory=dict)
    """Old step id to new one, where they differ."""
    waits: Mapping[int, str | None] = field(default_factory=dict)
    """Waits of the present step that go over, with their names; None gives one up. What is not named stays behind."""
    decisions: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[tuple[str, str], tuple[str, str] | None] = field(default_factory=dict)
    functions: tuple[dict[str, Any], ...] = ()
    reverts: int | None = None
    planned: MadePlan | None = None
    """The plan the run made for itself, which goes along."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A line that was begun."""

    number: int
    seq: int


def begin(cursor: Cursor, run_id: UUID, line: NewLine) -> Begun:
    """Begin it. Needs a transaction in which the run's row is locked and the run is not in somebody else's hand."""
    cursor.execute(_RUN, [run_id])
    lineage, head_seq, _, from_plan, from_step, _, fence, effects_through = cursor.fetchone()
    number, seq = lineage + 1, head_seq + 1
    moved = {
        "waits": _move_waits(cursor, line, lineage=number),
        "effects": _move_effects(cursor, run_id, line),
        "decisions": _move_decisions(cursor, run_id, line, from_step),
    }
    params = {
        "run": run_id,
        "kind": line.kind,
        "lineage": number,
        "from_seq": head_seq,
        "seq": seq,
        "from_plan": from_plan,
        "plan": line.plan_id,
        "state": line.state,
        "step": line.step_id,
        "cursor": None if line.cursor is None else json.dumps(line.cursor),
        "effects": effects_through,
        "fence": fence,
        "isolated": line.isolated,
        "resource": line.resource,
        "functions": json.dumps(list(line.functions)),
        "moved": json.dumps(moved),
        "reverts": line.reverts,
        "actor": line.actor[:200],
        "reason": line.reason,
    }
    for statement in (_CHECKPOINT, _MOVE_RUN, _LINEAGE):
        cursor.execute(statement, params)
    if line.planned is not None:
        made_plans.bring(cursor, run_id, line.planned, actor=line.actor, why=line.reason)
    return Begun(number=number, seq=seq)


def put_back(cursor: Cursor, moved: Mapping[str, Any], *, lineage: int) -> None:
    """Give waits, effects and decisions back the places they had before a line that is taken back."""
    for pk, step_id, name, gave_up in moved.get("waits", ()):
        cursor.execute(_WAIT, [lineage, step_id, name, pk])
        if gave_up:
            cursor.execute(
                "UPDATE runs_wait SET state = 'open', answered_at = NULL WHERE id = %s AND answer IS NULL", [pk]
            )
    if moved.get("effects"):
        cursor.execute(_LET_SLOTS_FOLLOW)
    for pk, step_id, tool, slot in moved.get("effects", ()):
        cursor.execute(_EFFECT, [step_id, tool, slot, False, pk])
    for pk, step_id, name in moved.get("decisions", ()):
        cursor.execute(_DECISION, [step_id, name, pk])


def _move_waits(cursor: Cursor, line: NewLine, *, lineage: int) -> list[list[Any]]:
    """Waits keep their ids, clocks and answers: a page that shows one may still answer it, and a fired one stays so."""
    moved = []
    for pk, name in line.waits.items():
        cursor.execute("SELECT step_id, name, state FROM runs_wait WHERE id = %s", [pk])
        step_id, old, state = cursor.fetchone()
        moved.append([pk, step_id, old, name is None and state == "open"])
        if name is None:
            cursor.execute(_GIVE_UP_WAIT, [pk])
        else:
            cursor.execute(_WAIT, [lineage, line.step_id, name, pk])
    return moved


def _move_effects(cursor: Cursor, run_id: UUID, line: NewLine) -> list[list[Any]]:
    """Keys stay: what is sent again goes out under the key the other side knows. Only the slot follows the names."""
    steps = sorted({*line.steps, *(step for step, _ in line.effects)})
    if not steps:
        return []
    cursor.execute(_EFFECTS, [run_id, steps])
    rows = cursor.fetchall()
    cursor.execute(_LET_SLOTS_FOLLOW)
    moved = []
    for pk, step_id, tool, resource, request_hash, author_key, slot in rows:
        place = line.effects.get((step_id, tool), (line.steps.get(step_id, step_id), tool))
        if place == (step_id, tool):
            continue
        left = place is None
        if place is None:
            # Nothing asks for a slot like this: what the effect was keeps its name.
            new_slot = hashlib.sha256(f"left behind:{slot}".encode()).hexdigest()
            place = (step_id, tool)
        else:
            new_slot = slot_of(
                run_id=run_id, step_id=place[0], tool=place[1], resource=resource, request_hash=request_hash,
                author_key=author_key,
            )  # fmt: skip
        moved.append([pk, step_id, tool, slot])
        cursor.execute(_EFFECT, [place[0], place[1], new_slot, left, pk])
    return moved


def _move_decisions(cursor: Cursor, run_id: UUID, line: NewLine, from_step: str) -> list[list[Any]]:
    steps = sorted({*line.steps, from_step}) if line.steps or line.decisions else []
    if not steps:
        return []
    cursor.execute(_DECISIONS, [run_id, steps])
    moved = []
    for pk, step_id, name in cursor.fetchall():
        new = (line.steps.get(step_id, step_id), line.decisions.get(name, name))
        if new != (step_id, name):
            moved.append([pk, step_id, name])
            cursor.execute(_DECISION, [*new, pk])
    return moved

"""What is owed: orders about all that a run had done, and their application once it, and all below it, has ended.

An order is a row written with the verb that gave it. Applying it is one transaction: what is owed is listed and, for
`compensate`, the linked run is started and put in charge. A process that dies in between leaves an order that upkeep
applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from durableops.engine import bell
from durableops.engine.compensation.ways import COLUMNS, Way, as_rows, known_or_by_hand, unknown, ways
from durableops.engine.database import Database
from durableops.engine.start import check_new, insert
from runs.ids import uuid7
from runs.models.compensation import BEGUN, COMPENSATION_FINAL
from runs.transitions import Cursor, record_event

WORKFLOW = "durableops.compensation"
"""The built-in workflow whose runs undo."""

_FINAL = ", ".join(f"'{state}'" for state in COMPENSATION_FINAL)
_BEGUN = ", ".join(f"'{state}'" for state in BEGUN)

# A run's children are part of what it did: ordered for the parent, it is ordered for them.
FAMILY = """
WITH RECURSIVE family AS (
    SELECT id, finished_at FROM runs_run WHERE id = %(run)s
    UNION ALL
    SELECT c.id, c.finished_at FROM runs_run c JOIN family f ON c.parent_id = f.id
)"""
# What happened, and what will certainly happen; what an undo did is not undone again.
UNDOABLE = f"""(e.state = 'succeeded' OR (e.safety = 'outbox' AND e.state = 'queued')) AND NOT EXISTS (
    SELECT 1 FROM runs_run u WHERE u.id = e.run_id AND u.workflow = '{WORKFLOW}')"""

_ORDER = """
INSERT INTO runs_compensation_order (run_id, tenant_id, choice, actor, reason, at)
SELECT r.id, r.tenant_id, %(choice)s, %(actor)s, %(reason)s, now() FROM runs_run r WHERE r.id = %(run)s
ON CONFLICT (run_id) WHERE applied_at IS NULL DO UPDATE SET choice = excluded.choice, actor = excluded.actor,
    reason = excluded.reason, at = excluded.at
RETURNING id"""
_ORDERS_OF_ENDED = """
FROM runs_compensation_order o JOIN runs_run r ON r.id = o.run_id
WHERE o.applied_at IS NULL AND r.finished_at IS NOT NULL"""
IS_READY = f"EXISTS (SELECT 1 {_ORDERS_OF_ENDED})"
"""Whether there is an order whose run has ended."""
_READY = f"SELECT o.id, o.run_id {_ORDERS_OF_ENDED} ORDER BY o.id LIMIT %s"
_LOCK_RUN = "SELECT tenant_id FROM runs_run WHERE id = %s FOR NO KEY UPDATE"
_LOCK_ORDER = """
SELECT choice, actor, reason FROM runs_compensation_order WHERE id = %s AND applied_at IS NULL FOR NO KEY UPDATE"""
_STILL_OPEN = FAMILY + "SELECT EXISTS (SELECT 1 FROM family WHERE finished_at IS NULL)"
_TOOLS = (
    FAMILY
    + f"""
SELECT DISTINCT e.tool FROM family f JOIN runs_effect e ON e.run_id = f.id WHERE e.safety <> 'read' AND {UNDOABLE}"""
)
_OWE = f"""
INSERT INTO runs_compensation (effect_id, run_id, tenant_id, state, state_since, how, tool, instructions, four_eyes,
    because, owed_at, spent_slots, error, proposed_by, approved_by, claimed_by, settled_by, evidence, downstream_id,
    reason)
SELECT e.id, e.run_id, e.tenant_id, 'owed', now(), w.how, w.tool, w.instructions, w.four_eyes, %(because)s, now(), 0,
    '', '', '', '', '', '', '', ''
FROM runs_effect e JOIN jsonb_to_recordset(%(ways)s::jsonb) AS w({COLUMNS}) ON w.of = e.tool
WHERE {{which}}
ON CONFLICT (effect_id) DO NOTHING
RETURNING id"""
_OWE_FAMILY = FAMILY + _OWE.format(which=f"e.run_id IN (SELECT id FROM family) AND {UNDOABLE}")
_OWE_ONE = _OWE.format(which="e.id = %(effect)s")
_OWED = (
    FAMILY
    + """
SELECT count(*) FROM runs_compensation c WHERE c.run_id IN (SELECT id FROM family) AND c.state = 'owed'"""
)
_BEGIN = (
    FAMILY
    + """
UPDATE runs_compensation c SET state = CASE WHEN c.four_eyes AND c.how = 'tool' THEN 'proposed' ELSE 'approved' END,
    state_since = now(), order_id = %(order)s, linked_run_id = %(linked)s, error = '',
    proposed_by = CASE WHEN c.four_eyes AND c.how = 'tool' THEN %(actor)s ELSE '' END,
    approved_by = CASE WHEN c.four_eyes THEN '' ELSE %(actor)s END
WHERE c.run_id IN (SELECT id FROM family) AND c.state = 'owed'"""
)
_APPLIED = """
UPDATE runs_compensation_order SET applied_at = now(), linked_run_id = %(linked)s WHERE id = %(order)s"""

# Somebody cancelled the linked run, or it failed: what it had not settled is owed again, and seen.
_RELEASE = f"""
UPDATE runs_compensation SET state = 'owed', state_since = now(), linked_run_id = NULL, proposed_by = '',
    approved_by = '', claimed_by = '', claimed_at = NULL
WHERE id IN (
    SELECT c.id FROM runs_compensation c JOIN runs_run r ON r.id = c.linked_run_id
    WHERE c.state NOT IN ({_FINAL}) AND r.finished_at IS NOT NULL ORDER BY c.id LIMIT %s FOR UPDATE OF c SKIP LOCKED)
RETURNING run_id, effect_id"""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What applying an order came to."""

    owed: int
    """Effects of the run, and of all below it, that are owed or being undone by now."""
    linked_run: UUID | None
    """The run that undoes them; None when nothing is to be undone, or not yet."""


def order(cursor: Cursor, run_id: UUID, *, choice: str, actor: str, reason: str) -> int:
    """Note what is to become of all that a run did. A second order before the first was applied replaces it.

    Needs the run's row locked.
    """
    cursor.execute(_ORDER, {"run": run_id, "choice": choice, "actor": actor, "reason": reason})
    made: int = cursor.fetchone()[0]
    return made


def apply_order(cursor: Cursor, order_id: int, run_id: UUID) -> Begun | None:
    """Apply an order. None when it was applied already, or when something below the run is still open.

    Needs a transaction around it; ring the bell when a linked run was started.
    """
    cursor.execute(_LOCK_RUN, [run_id])
    tenant_id = cursor.fetchone()[0]
    cursor.execute(_LOCK_ORDER, [order_id])
    found = cursor.fetchone()
    if found is None:
        return None
    cursor.execute(_STILL_OPEN, {"run": run_id})
    if cursor.fetchone()[0]:
        return None
    choice, actor, reason = found
    cursor.execute(
        _OWE_FAMILY, {"run": run_id, "because": f"{actor}: {reason}", "ways": as_rows(ways_for(cursor, run_id))}
    )
    cursor.execute(_OWED, {"run": run_id})
    owed = cursor.fetchone()[0]
    linked = _start(cursor, order_id, run_id, tenant_id, actor) if owed and choice == "compensate" else None
    cursor.execute(_APPLIED, {"order": order_id, "linked": linked})
    if owed:
        told = {"order": order_id, "owed": owed, "linked_run": None if linked is None else str(linked)}
        event = "compensation_owed" if linked is None else "compensation_begun"
        record_event(cursor, run_id, event, actor=actor, reason=reason, data=told)
    return Begun(owed=owed, linked_run=linked)


def ways_for(cursor: Cursor, run_id: UUID) -> list[Way]:
    """How what a run and all below it did is undone: as its tools say, and by hand where no code knows the tool now."""
    cursor.execute(_TOOLS, {"run": run_id})
    return [*ways(), *(known_or_by_hand(name) for (name,) in cursor.fetchall() if unknown(name))]


def _start(cursor: Cursor, order_id: int, run_id: UUID, tenant_id: int, actor: str) -> UUID:
    linked = uuid7()
    new = check_new(WORKFLOW, {"undoes": str(run_id)}, labels={"undoes": str(run_id)})
    insert(cursor, new, run_id=linked, tenant_id=tenant_id, actor=actor, start_key=f"{WORKFLOW}/{order_id}")
    cursor.execute(_BEGIN, {"run": run_id, "order": order_id, "linked": linked, "actor": actor})
    return linked


def owe(cursor: Cursor, effect_id: int, *, actor: str, because: str) -> int | None:
    """List one effect as owed, whatever its outcome says. Returns the compensation's id; None when it is listed.

    For whoever settles a doubt with "compensate". Needs a transaction, with the effect's run locked.
    """
    cursor.execute("SELECT run_id, tool FROM runs_effect WHERE id = %s", [effect_id])
    run_id, tool = cursor.fetchone()
    rows = as_rows([known_or_by_hand(tool)])
    cursor.execute(_OWE_ONE, {"effect": effect_id, "because": f"{actor}: {because}", "ways": rows})
    made = cursor.fetchone()
    if made is None:
        return None
    record_event(cursor, run_id, "compensation_owed", actor=actor, reason=because,
                 data={"effect": effect_id, "tool": tool, "owed": 1})  # fmt: skip
    found: int = made[0]
    return found


def owe_if_ordered(cursor: Cursor, effect_id: int) -> int | None:
    """List an effect that turned out to have happened after its run's undoing had been ordered.

    For whoever settles a doubt as "it happened". Needs a transaction, with the effect's run locked.
    """
    cursor.execute(
        "SELECT o.actor, o.reason FROM runs_effect e JOIN runs_compensation_order o ON o.run_id = e.run_id"
        " WHERE e.id = %s AND o.applied_at IS NOT NULL ORDER BY o.id DESC LIMIT 1",
        [effect_id],
    )
    found = cursor.fetchone()
    return None if found is None else owe(cursor, effect_id, actor=found[0], because=found[1])


def has_begun(cursor: Cursor, run_id: UUID) -> bool:
    """Whether anything that this run did is being undone, or was."""
    cursor.execute(
        f"SELECT EXISTS (SELECT 1 FROM runs_compensation WHERE run_id = %s AND state IN ({_BEGUN}))", [run_id]
    )
    return bool(cursor.fetchone()[0])


def apply_ready(database: Database, *, limit: int = 50) -> int:
    """Apply the orders whose run has ended meanwhile. Returns how many."""
    applied = 0
    for order_id, run_id in database.fetch(_READY, [limit]):
        with database.transaction() as cursor:
            begun = apply_order(cursor, order_id, run_id)
        applied += begun is not None
        if begun is not None and begun.linked_run is not None:
            bell.ring()
    return applied


def release_unattended(database: Database, *, limit: int = 200) -> int:
    """List as owed again what a linked run left when it ended. Returns how many."""
    with database.transaction() as cursor:
        cursor.execute(_RELEASE, [limit])
        released = cursor.fetchall()
        for run_id, effect_id in released:
            record_event(cursor, run_id, "compensation_owed", actor="upkeep",
                         reason="the run that was undoing it has ended", data={"effect": effect_id})  # fmt: skip
    return len(released)

"""Parents and children: made together, waited for together, cancelled together."""

from __future__ import annotations

import logging
from uuid import UUID

from durableops import failpoints
from durableops.engine import bell, findings
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.queues import leave_effects
from durableops.engine.start import NewRun, insert
from durableops.engine.waking import Closing, close_wait
from runs.ids import uuid7
from runs.transitions import Cursor, fire, fire_many, record_event

logger = logging.getLogger("durableops.family")

_PARENT = """
SELECT c.parent_id, c.parent_wait_id FROM runs_run c
WHERE c.id = %s AND c.parent_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM runs_run o WHERE o.parent_wait_id = c.parent_wait_id AND o.finished_at IS NULL)"""
_READY = """
SELECT w.run_id, w.id FROM runs_wait w JOIN runs_run p ON p.id = w.run_id AND p.state = 'waiting'
WHERE w.kind = 'children' AND w.state = 'open'
  AND NOT EXISTS (SELECT 1 FROM runs_run o WHERE o.parent_wait_id = w.id AND o.finished_at IS NULL)
ORDER BY w.id LIMIT %s"""


def create_children(
    cursor: Cursor, new: list[NewRun], *, parent_id: UUID, wait_id: int, tenant_id: int, actor: str
) -> None:
    """Create every child of a wait, in the transaction that opens the wait: all or none.

    A child's deadline is its own or its parent's, whichever comes first.
    """
    cursor.execute("SELECT deadline_at FROM runs_run WHERE id = %s", [parent_id])
    deadline_at = cursor.fetchone()[0]
    for index, child in enumerate(new):
        insert(cursor, child, run_id=uuid7(), tenant_id=tenant_id, actor=actor, parent=(parent_id, wait_id, index),
               deadline_at=deadline_at)  # fmt: skip


def nudge_parent(database: Database, child_id: UUID) -> None:
    """Wake the parent if this was the last child to finish.

    Called after the child's commit, on a snapshot of its own: of two children that finish together the later one sees
    both. If this process dies in between, the sweep does it.
    """
    failpoints.reach(failpoints.Point.BEFORE_PARENT_NUDGED)
    try:
        rows = database.fetch(_PARENT, [child_id])
        if rows:
            with database.transaction() as cursor:
                woken = children_done(cursor, run_id=rows[0][0], wait_id=rows[0][1])
            if woken:
                bell.ring()
    except ConnectionLost as lost:
        logger.warning("parent of run %s was not told, the sweep will: %s", child_id, lost)


def children_done(cursor: Cursor, *, run_id: UUID, wait_id: int) -> bool:
    """Close the wait of a parent whose children are all finished; a parent that was cancelled meanwhile ends here."""
    closing = Closing(state="answered", cause="children", detail="all child runs have finished", answer="null")
    cursor.execute("SELECT state, cancel_requested, cancel_requested_by, cancel_reason FROM runs_run WHERE id = %s "
                   "FOR NO KEY UPDATE", [run_id])  # fmt: skip
    state, cancelled, by, reason = cursor.fetchone()
    if state == "waiting" and cancelled:
        cursor.execute(
            "UPDATE runs_wait SET state = 'cancelled', answered_at = now() WHERE id = %s AND state = 'open'", [wait_id]
        )
        fire("cancel", run_id, using=cursor, actor=by, reason=reason)
        close_waits(cursor, [run_id])
        return True
    # Asked again under the parent's lock: a child may have been retried since somebody looked.
    cursor.execute("SELECT 1 FROM runs_run WHERE parent_wait_id = %s AND finished_at IS NULL LIMIT 1", [wait_id])
    if cursor.fetchone() is not None:
        return False
    return close_wait(cursor, run_id=run_id, wait_id=wait_id, closing=closing)


def sweep_parents(database: Database, *, limit: int = 100) -> int:
    """Wake parents whose last child was not able to. Returns how many."""
    rows = database.fetch(_READY, [limit])
    for run_id, wait_id in rows:
        with database.transaction() as cursor:
            children_done(cursor, run_id=run_id, wait_id=wait_id)
    return len(rows)


_OPEN_CHILDREN = """
WITH RECURSIVE family AS (
    SELECT id FROM runs_run WHERE parent_id = %(run)s AND (%(wait)s::bigint IS NULL OR parent_wait_id = %(wait)s)
    UNION ALL
    SELECT r.id FROM runs_run r JOIN family f ON r.parent_id = f.id
)
SELECT r.id, r.state FROM runs_run r JOIN family f USING (id) WHERE r.finished_at IS NULL ORDER BY r.id"""


def cancel_children(cursor: Cursor, run_id: UUID, *, actor: str, reason: str, of_wait: int | None = None) -> int:
    """Cancel everything below a run: what runs is asked to stop, the rest ends at once. Returns how many are open.

    With `of_wait`, only what that wait waits for.
    """
    cursor.execute(_OPEN_CHILDREN, {"run": run_id, "wait": of_wait})
    found = cursor.fetchall()
    ids = [row[0] for row in found]
    if not ids:
        return 0
    params = {"ids": ids, "by": actor, "why": reason}
    cursor.execute(
        "UPDATE runs_run SET cancel_requested = true, cancel_requested_by = %(by)s, cancel_reason = %(why)s,"
        " paused = false"
        " WHERE id IN (SELECT id FROM runs_run WHERE id = ANY(%(ids)s) AND finished_at IS NULL"
        " ORDER BY id FOR NO KEY UPDATE)"
        " RETURNING id, state",
        params,
    )
    for child_id, state in cursor.fetchall():
        if state == "running":
            record_event(cursor, child_id, "cancel_requested", actor=actor, reason=reason)
    # Leaves first is not needed: a parent that waits for children which are still running stays until they are done.
    ended = fire_many(
        "cancel",
        cursor,
        pick="r.id = ANY(%(ids)s) AND r.state <> 'running' AND r.finished_at IS NULL AND NOT EXISTS ("
        "SELECT 1 FROM runs_run c WHERE c.parent_id = r.id AND c.state IN ('running', 'waiting'))"
        " ORDER BY r.id FOR NO KEY UPDATE",
        params={**params, "actor": actor},
        reason=reason,
    )
    close_waits(cursor, [fired.run_id for fired in ended])
    return len(ids) - len(ended)


def close_waits(cursor: Cursor, run_ids: list[UUID]) -> None:
    """Nothing waits for a run that has ended. What it left without an outcome is in doubt, and stays listed.

    Nobody has to decide any more how it goes on.
    """
    if run_ids:
        findings.close(cursor, run_ids, closed_as="ended", by=findings.ENGINE, why="the run ended")
        leave_effects(cursor, run_ids, ended=True, cause="run_ended", because="its run ended.")
        cursor.execute(
            "UPDATE runs_wait SET state = 'cancelled', answered_at = now() WHERE run_id = ANY(%s) AND state = 'open'",
            [run_ids],
        )

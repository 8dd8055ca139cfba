"""Claiming: the only code that takes runs from the queue, and what undoes a claim nobody answers for."""

from __future__ import annotations

from uuid import UUID

from durableops.engine.database import Database
from durableops.engine.queues import leave_effects
from runs import claiming
from runs.claiming import Claimed, Taken, Taker
from runs.transitions import fire_many


def claim_next(database: Database, *, taker: Taker, limit: int = 1) -> list[Claimed]:
    """Take the most urgent due runs, tenants in turn. Empty when nothing is claimable. Raises ConnectionLost."""
    return take_next(database, taker=taker, limit=limit).runs


def take_next(database: Database, *, taker: Taker, limit: int = 1) -> Taken:
    """The same, and whether another kind of claim may still find something."""
    return database.retrying(lambda cursor: claiming.take(cursor, taker, limit=limit))


_SIBLINGS_WAIT = """
SELECT EXISTS (SELECT 1 FROM runs_run r WHERE r.state = 'queued' AND NOT r.paused AND NOT r.deferred
               AND r.due_at <= now() AND r.isolated = %s AND r.tenant_id = %s)"""


def others_wait(database: Database, *, tenant_id: int, isolated: bool) -> bool:
    """Whether a run in hand should give way: to one of its own tenant, whose place it has, or to any that could start.

    Runs of other tenants that wait for their own caps are no reason.
    """
    if database.read(_SIBLINGS_WAIT, [isolated, tenant_id])[0][0]:
        return True
    return claimable(database, isolated=isolated, most=1) > 0


def claimable(database: Database, *, isolated: bool, most: int) -> int:
    """How many due runs could be taken now, up to `most`. Raises ConnectionLost."""
    return database.retrying(lambda cursor: claiming.claimable(cursor, isolated=isolated, most=most))


def release_unheld(database: Database, *, worker_id: UUID, held: list[UUID], why: str) -> int:
    """Hand back runs that stand under our name and are not in hand: the answer to their claim or release was lost."""
    with database.transaction() as cursor:
        released = fire_many(
            "hand_back",
            cursor,
            pick="r.state = 'running' AND r.worker_id = %(worker)s AND NOT (r.id = ANY(%(held)s)) "
            "ORDER BY r.id FOR NO KEY UPDATE",
            params={"worker": worker_id, "held": held, "why": why},
            sets="wake_cause = 'database_lost', wake_detail = %(why)s, woken_at = now()",
            reason=why,
        )
        runs = [fired.run_id for fired in released]
        leave_effects(cursor, runs, ended=False, cause="worker_lost", because=f"its worker lost it: {why}.")
    return len(released)

"""Claiming: the only code that takes runs from the queue, and what undoes a claim nobody answers for."""

from __future__ import annotations

from uuid import UUID

from durableops.engine.database import Database
from runs import claiming
from runs.claiming import Claimed, Taker
from runs.transitions import fire_many


def claim_next(database: Database, *, taker: Taker, limit: int = 1) -> list[Claimed]:
    """Take the most urgent due runs, tenants in turn. Empty when nothing is claimable. Raises ConnectionLost."""
    return database.retrying(lambda cursor: claiming.claim(cursor, taker, limit=limit))


def release_unheld(database: Database, *, worker_id: UUID, held: list[UUID], why: str) -> int:
    """Hand back runs that stand under our name and are not in hand: the answer to their claim or release was lost."""
    with database.cursor() as cursor:
        released = fire_many(
            "hand_back",
            cursor,
            pick="r.state = 'running' AND r.worker_id = %(worker)s AND NOT (r.id = ANY(%(held)s)) "
            "ORDER BY r.id FOR NO KEY UPDATE",
            params={"worker": worker_id, "held": held, "why": why},
            sets="wake_cause = 'database_lost', wake_detail = %(why)s, woken_at = now()",
            reason=why,
        )
    return len(released)

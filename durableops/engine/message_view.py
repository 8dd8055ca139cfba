"""Messages of the outbox for the API and the command line: those nobody took, and the next one of each lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from durableops.errors import MessageNotFound
from runs.models import Tenant
from runs.relaying import READY

_MESSAGE = """
SELECT m.id, m.effect_id, l.id, l.run_id, l.destination, m.state, m.attempts, m.sendings, m.created_at, m.attempted_at,
    m.finished_at, CASE WHEN m.state = 'pending' AND l.held_by IS NULL THEN l.due_at END, l.depth,
    l.held_by = m.id IS TRUE, e.tool, e.resource, e.key, m.error_class, m.error_message
FROM runs_outbox_message m JOIN runs_outbox_lane l ON l.id = m.lane_id JOIN runs_effect e ON e.id = m.effect_id"""
_ONE = f"{_MESSAGE} WHERE m.id = %(message)s AND m.tenant_id = %(tenant)s"
_POISONED = f"""
{_MESSAGE} WHERE m.tenant_id = %(tenant)s AND m.state = 'poisoned' AND m.id > %(after)s ORDER BY m.id LIMIT %(limit)s"""
# Lanes in the order of the index they are claimed by, each with its head; what stands behind it is `depth`.
_WAITING = f"""
WITH waiting AS (
    SELECT l.id FROM runs_outbox_lane l WHERE {READY} AND l.tenant_id = %(tenant)s
      AND (l.destination, l.due_at, l.id) > (%(destination)s, %(due_at)s, %(lane)s)
    ORDER BY l.destination, l.due_at, l.id LIMIT %(limit)s)
{_MESSAGE} JOIN waiting w ON w.id = l.id
WHERE m.id = (SELECT h.id FROM runs_outbox_message h WHERE h.lane_id = l.id AND h.state = 'pending'
    ORDER BY h.id LIMIT 1)
ORDER BY l.destination, l.due_at, l.id"""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message."""

    id: int
    effect_id: int
    lane_id: int
    run_id: UUID
    destination: str
    state: str
    attempts: int
    sendings: int
    created_at: datetime
    attempted_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None
    """When it is tried next; none while it is not waiting for that."""
    depth: int
    """Messages of its lane that have not left yet."""
    holds_lane: bool
    tool: str
    resource: str
    key: str
    error_class: str
    error_message: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """A lane among those that wait: where a page ends."""

    destination: str = ""
    due_at: str = "-infinity"
    lane_id: int = 0


def find(message_id: int, *, tenant: Tenant) -> Message:
    """One message. Raises MessageNotFound, also for one of another tenant."""
    found = _fetch(_ONE, {"message": message_id, "tenant": tenant.pk})
    if not found:
        raise MessageNotFound(f"there is no message {message_id} here.")
    return found[0]


def poisoned(*, tenant: Tenant, limit: int, after: int = 0) -> Sequence[Message]:
    """Those that are not tried any more until a person decides, oldest first."""
    return _fetch(_POISONED, {"tenant": tenant.pk, "after": after, "limit": limit})


def waiting(*, tenant: Tenant, limit: int, after: Place | None = None) -> Sequence[Message]:
    """The next message of each lane that nobody delivers just now, by destination and the time of the next try."""
    place = after or Place()
    params = {"destination": place.destination, "due_at": place.due_at, "lane": place.lane_id}
    return _fetch(_WAITING, {"tenant": tenant.pk, "limit": limit, **params})


def place_of(message: Message) -> Place:
    """Where a page ends whose last message this is."""
    due_at = message.due_at.isoformat() if message.due_at is not None else "infinity"
    return Place(destination=message.destination, due_at=due_at, lane_id=message.lane_id)


def _fetch(sql: str, params: dict[str, Any]) -> list[Message]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [Message(**dict(zip(Message.__dataclass_fields__, row, strict=True))) for row in cursor.fetchall()]

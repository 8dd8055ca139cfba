"""What the Outbox page shows: destinations with what waits for them, the lanes of one, one message. Bounded reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from durableops.effects.addresses import shown_host as shown_host
from runs.models import OutboxDestination, OutboxMessage, WebhookEndpoint, Worker
from runs.posting import WEBHOOK
from runs.relaying import FAILURES, READY

MOST_DESTINATIONS = 200
COUNT_CAP = 1000
PER_PAGE = 50

# Destinations with lanes that are ready or will be, each found by one descent; those with held or claimed lanes; and
# those that fail or were stopped. Each is then counted up to a cap.
_DESTINATIONS = f"""
WITH RECURSIVE walk AS (
    SELECT t.id AS tenant_id, f.destination, 1 AS number FROM unnest(%(tenants)s::int[]) t(id) CROSS JOIN LATERAL (
        SELECT l.destination FROM runs_outbox_lane l WHERE {READY} AND l.tenant_id = t.id
        ORDER BY l.destination LIMIT 1) f
    UNION ALL
    SELECT w.tenant_id, f.destination, w.number + 1 FROM walk w CROSS JOIN LATERAL (
        SELECT l.destination FROM runs_outbox_lane l WHERE {READY} AND l.tenant_id = w.tenant_id
        AND l.destination > w.destination ORDER BY l.destination LIMIT 1) f
    WHERE w.number < %(most)s
), named AS (
    SELECT tenant_id, destination FROM walk
    UNION SELECT x.tenant_id, x.destination FROM (
        SELECT l.tenant_id, l.destination FROM runs_outbox_lane l
        WHERE l.held_by IS NOT NULL AND l.tenant_id = ANY(%(tenants)s) LIMIT %(cap)s) x
    UNION SELECT l.tenant_id, l.destination FROM runs_outbox_lane l
        WHERE l.relay_id IS NOT NULL AND l.tenant_id = ANY(%(tenants)s)
    UNION SELECT d.tenant_id, d.name FROM runs_outbox_destination d
        WHERE d.tenant_id = ANY(%(tenants)s) AND (d.failures > 0 OR d.stopped_by <> '')
)
SELECT n.tenant_id, t.slug, n.destination, q.lanes, q.messages, q.due_at, h.held, c.under_way
FROM (SELECT * FROM named ORDER BY tenant_id, destination LIMIT %(most)s) n JOIN runs_tenant t ON t.id = n.tenant_id
CROSS JOIN LATERAL (SELECT count(*) AS lanes, coalesce(sum(x.depth), 0) AS messages, min(x.due_at) AS due_at FROM (
    SELECT l.depth, l.due_at FROM runs_outbox_lane l WHERE {READY} AND l.tenant_id = n.tenant_id
    AND l.destination = n.destination ORDER BY l.due_at LIMIT %(cap)s + 1) x) q
CROSS JOIN LATERAL (SELECT count(*) AS held FROM (
    SELECT 1 FROM runs_outbox_lane l WHERE l.held_by IS NOT NULL AND l.tenant_id = n.tenant_id
    AND l.destination = n.destination LIMIT %(cap)s + 1) x) h
CROSS JOIN LATERAL (SELECT count(*) AS under_way FROM runs_outbox_lane l WHERE l.relay_id IS NOT NULL
    AND l.tenant_id = n.tenant_id AND l.destination = n.destination) c
ORDER BY t.slug, n.destination"""

_HEAD = """
CROSS JOIN LATERAL (SELECT m.id, m.attempts, m.error_message, m.created_at, e.tool, e.resource
    FROM runs_outbox_message m JOIN runs_effect e ON e.id = m.effect_id
    WHERE m.lane_id = l.id AND (m.state = 'pending' OR m.id = l.held_by)
    ORDER BY m.id = l.held_by DESC, m.id LIMIT 1) m"""
_LANE = """
SELECT l.id, l.run_id, r.workflow, l.depth, l.due_at, l.held_by IS NOT NULL, w.number, m.id, m.attempts,
    m.error_message, m.created_at, m.tool, m.resource
FROM runs_outbox_lane l JOIN runs_run r ON r.id = l.run_id LEFT JOIN runs_worker w ON w.id = l.relay_id"""
_OF = "l.tenant_id = %(tenant)s AND l.destination = %(destination)s"
_LANES = f"""
{_LANE} {_HEAD} WHERE {READY} AND {_OF} AND (l.due_at, l.id) > (%(due_at)s, %(after)s)
ORDER BY l.due_at, l.id LIMIT %(limit)s"""
_STUCK = f"""
({_LANE} {_HEAD} WHERE l.held_by IS NOT NULL AND {_OF} ORDER BY l.id LIMIT %(limit)s)
UNION ALL ({_LANE} {_HEAD} WHERE l.relay_id IS NOT NULL AND {_OF} ORDER BY l.id LIMIT %(limit)s)"""


@dataclass(frozen=True, kw_only=True)
class Destination:
    """One destination of a tenant, as the page shows it."""

    tenant_id: int
    tenant: str
    name: str
    label: str
    """What people call it: for a webhook, the host of its endpoint."""
    endpoint_id: UUID | None
    lanes: int
    messages: int
    is_capped: bool
    due_at: datetime | None
    held: int
    under_way: int
    record: OutboxDestination | None
    state: str
    """`stopped`, `rests`, `failing`, `unknown` (no living relay has its handler), `held`, or `goes`."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One lane with its head."""

    id: int
    run_id: UUID
    workflow: str
    depth: int
    due_at: datetime
    held: bool
    relay: int | None
    message_id: int
    attempts: int
    error: str
    created_at: datetime
    tool: str
    resource: str


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Some lanes of a destination: first those that are held or under way, then by the time of their next try."""

    stuck: list[Lane]
    waiting: list[Lane]
    following: str


def destinations(tenants: Sequence[int], *, now: datetime) -> list[Destination]:
    """Every destination of these tenants that has something to say, up to MOST_DESTINATIONS."""
    params = {"tenants": list(tenants), "most": MOST_DESTINATIONS, "cap": COUNT_CAP}
    rows = _fetch(_DESTINATIONS, params)
    records = {
        (one.tenant_id, one.name): one
        for one in OutboxDestination.objects.filter(tenant__in=tenants, name__in={row[2] for row in rows})
    }
    endpoints = WebhookEndpoint.objects.in_bulk([i for row in rows if (i := endpoint_of(row[2])) is not None])
    known = {name for relay in _relays() for name in relay.destinations}
    found = []
    for tenant_id, tenant, name, lanes, messages, due_at, held, under_way in rows:
        record, endpoint_id = records.get((tenant_id, name)), endpoint_of(name)
        endpoint = endpoints.get(endpoint_id) if endpoint_id is not None else None
        found.append(
            Destination(
                tenant_id=tenant_id, tenant=tenant, name=name, endpoint_id=endpoint_id,
                label=shown_host(endpoint.url) if endpoint is not None else name, lanes=min(lanes, COUNT_CAP),
                messages=messages, is_capped=lanes > COUNT_CAP, due_at=due_at, held=min(held, COUNT_CAP),
                under_way=under_way, record=record,
                state=_state(record, now=now, held=held, is_known=endpoint_id is not None or name in known),
            )
        )  # fmt: skip
    return found


def _state(record: OutboxDestination | None, *, now: datetime, held: int, is_known: bool) -> str:
    if record is not None and record.stopped_by:
        return "stopped"
    if record is not None and record.open_until is not None and record.open_until > now:
        return "rests"
    if not is_known:
        return "unknown"
    if record is not None and record.failures >= FAILURES:
        return "failing"
    return "held" if held else "goes"


def relays() -> int:
    """How many relays live."""
    return len(_relays())


def _relays() -> list[Worker]:
    return list(Worker.objects.filter(kind="relay", ended_at=None).only("id", "destinations")[:500])


def lanes(tenant_id: int, name: str, *, cursor: str = "") -> Lanes:
    """The lanes of one destination; keyset paging by the time of their next try."""
    due_at, after = _parsed(cursor)
    params = {
        "tenant": tenant_id, "destination": name, "due_at": due_at, "after": after, "limit": PER_PAGE + 1,
    }  # fmt: skip
    waiting = [_lane(row) for row in _fetch(_LANES, params)]
    stuck = [] if cursor else [_lane(row) for row in _fetch(_STUCK, params)][: 2 * PER_PAGE]
    last = waiting[PER_PAGE - 1] if len(waiting) > PER_PAGE else None
    following = f"{last.due_at.isoformat()}~{last.id}" if last is not None else ""
    return Lanes(stuck=stuck, waiting=waiting[:PER_PAGE], following=following)


@dataclass(frozen=True, kw_only=True)
class Deliveries:
    """Some messages to an endpoint, newest first."""

    messages: list[OutboxMessage]
    following: int | None


def deliveries(endpoint_id: UUID, *, before: int | None = None) -> Deliveries:
    """The newest messages to an endpoint."""
    rows = OutboxMessage.objects.filter(endpoint_id=endpoint_id).select_related("effect", "lane")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.defer("effect__result").order_by("-pk")[: PER_PAGE + 1])
    more = len(found) > PER_PAGE
    return Deliveries(messages=found[:PER_PAGE], following=found[PER_PAGE - 1].pk if more else None)


def endpoint_of(name: str) -> UUID | None:
    """The endpoint a destination's name means; None for a handler's."""
    return UUID(name.removeprefix(WEBHOOK)) if name.startswith(WEBHOOK) else None


def _lane(row: tuple[Any, ...]) -> Lane:
    return Lane(**dict(zip(Lane.__dataclass_fields__, row, strict=True)))


def _parsed(cursor: str) -> tuple[datetime | str, int]:
    due_at, _, after = cursor.partition("~")
    try:
        return datetime.fromisoformat(due_at), int(after)
    except ValueError:
        return "-infinity", 0


def _fetch(sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())

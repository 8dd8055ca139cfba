"""The claim of lanes: one statement that takes the heads of those that are ready, with what is needed to send them.

A relay holds lanes, never runs. What becomes of the messages is written by `delivering`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.posting import WEBHOOK
from runs.transitions import Cursor

FAILURES = 5
"""A destination that failed so often in a row is left alone for a while, and then tried with one message at a time."""
TURNS = 64
"""So many destinations one claim looks at; the next one goes on behind them."""

READY = "l.depth > 0 AND l.relay_id IS NULL AND l.held_by IS NULL"
"""A lane whose head may leave once it is due: the condition of its index."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The head of a lane in a relay's hand, with all that is needed to send it."""

    lane_id: int
    claim: int
    message_id: int | None
    """None when the lane turned out to have no head: another relay had just settled it."""
    destination: str
    tenant_id: int
    tenant: str
    run_id: UUID
    endpoint_id: UUID | None
    effect_id: int
    key: str
    slot: str
    request_hash: str
    tool: str
    resource: str
    author_key: str
    event_type: str
    body: str
    created_at: Any
    attempts: int
    tries: int
    """Those attempts that count: without what a person forgave."""
    sendings: int
    seconds_left: float | None
    """Until it must not be sent any more; None is for ever."""
    waited_seconds: float
    """From its commit to this claim."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A destination of a tenant, in the order in which claims walk."""

    tenant_id: int = 0
    destination: str = ""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What one claim came to."""

    taken: list[Taken]
    after: Place
    """Where the next claim goes on."""
    walked: int
    """How many destinations it looked at; with `TURNS` of them there may be more."""


@dataclass(frozen=True, kw_only=True)
class Taker:
    """Which relay claims, and what for."""

    relay_id: UUID
    known: tuple[str, ...]
    """Destinations whose handlers it has; webhooks are everybody's."""
    after: Place
    """The destination looked at last: the next one's turn comes first."""
    slots: int
    share: int
    """How many messages to one destination may be under way in this relay."""
    under_way: Mapping[tuple[int, str], int]
    probe_seconds: float
    """For how long a probe of a failing destination keeps others from probing."""


_AFTER = "(%(after_tenant)s::bigint, %(after)s::text)"
# Destinations take turns: the next ones that have a lane, from the one looked at last on, and round again. Each is one
# descent of the index, however many lanes and messages stand behind it. What is not due, or rests, costs only that.
_CLAIM = f"""
WITH RECURSIVE turn AS (
    SELECT %(after_tenant)s::bigint AS tenant_id, %(after)s::text AS destination, NULL::timestamptz AS due_at,
        false AS again, 0 AS number
    WHERE EXISTS (SELECT 1 FROM runs_worker w WHERE w.id = %(relay)s AND w.ended_at IS NULL)
    UNION ALL
    SELECT f.tenant_id, f.destination, f.due_at, f.again, t.number + 1 FROM turn t CROSS JOIN LATERAL (
        (SELECT l.tenant_id, l.destination, l.due_at, t.again FROM runs_outbox_lane l
         WHERE {READY} AND (l.tenant_id, l.destination) > (t.tenant_id, t.destination)
           AND (NOT t.again OR (l.tenant_id, l.destination) <= {_AFTER})
         ORDER BY l.tenant_id, l.destination, l.due_at LIMIT 1)
        UNION ALL
        (SELECT l.tenant_id, l.destination, l.due_at, true FROM runs_outbox_lane l
         WHERE NOT t.again AND {READY} AND (l.tenant_id, l.destination) <= {_AFTER}
         ORDER BY l.tenant_id, l.destination, l.due_at LIMIT 1)
        LIMIT 1
    ) f WHERE t.number < {TURNS}
), busy AS (
    SELECT * FROM jsonb_to_recordset(%(busy)s::jsonb) AS x(tenant_id bigint, destination text, many int)
), door AS MATERIALIZED (
    SELECT t.tenant_id, t.destination, t.number, d.id AS record, coalesce(d.failures, 0) >= {FAILURES} AS ajar,
        %(share)s - coalesce(b.many, 0) AS room
    FROM turn t LEFT JOIN runs_outbox_destination d ON d.tenant_id = t.tenant_id AND d.name = t.destination
    LEFT JOIN busy b ON b.tenant_id = t.tenant_id AND b.destination = t.destination
    WHERE t.number > 0 AND t.due_at <= now()
      AND (t.destination = ANY(%(known)s) OR starts_with(t.destination, '{WEBHOOK}'))
      AND coalesce(d.stopped_by, '') = '' AND coalesce(d.open_until <= now(), true)
      AND NOT EXISTS (SELECT 1 FROM runs_pause_switch s
                      WHERE s.scope = 'all' OR (s.scope = 'tenant' AND s.tenant_id = t.tenant_id))
), probed AS (
    UPDATE runs_outbox_destination d SET open_until = now() + %(probe)s * interval '1 second'
    FROM door WHERE d.id = door.record AND door.ajar AND d.failures >= {FAILURES} AND d.open_until <= now()
    RETURNING d.id
), picked AS MATERIALIZED (
    SELECT c.id, door.number FROM door CROSS JOIN LATERAL (
        SELECT l.id FROM runs_outbox_lane l
        WHERE {READY} AND l.tenant_id = door.tenant_id AND l.destination = door.destination AND l.due_at <= now()
        ORDER BY l.due_at, l.id
        LIMIT CASE WHEN door.ajar THEN 1 ELSE greatest(0, least(door.room,
            (SELECT ceil(%(slots)s::float8 / greatest(1, count(*)))::int FROM door))) END
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ) c
    WHERE NOT door.ajar OR door.record IN (SELECT p.id FROM probed p)
    ORDER BY door.number LIMIT %(slots)s
), taken AS (
    UPDATE runs_outbox_lane l SET relay_id = %(relay)s, claimed_at = now(), claim = l.claim + 1
    FROM picked p WHERE l.id = p.id
    RETURNING l.id, l.claim, l.destination, l.tenant_id, l.run_id, p.number
), head AS MATERIALIZED (
    SELECT h.* FROM taken t CROSS JOIN LATERAL (
        SELECT m.id, m.sendings, m.error_message FROM runs_outbox_message m
        WHERE m.lane_id = t.id AND m.state = 'pending' ORDER BY m.id LIMIT 1) h
), started AS (
    -- Looked at once more: a relay that settled this very message between our snapshot and our lock took it away.
    UPDATE runs_outbox_message m SET attempts = m.attempts + 1, sendings = m.sendings + 1, attempted_at = now(),
        error_class = '', error_message = ''
    FROM head h WHERE m.id = h.id AND m.state = 'pending'
    RETURNING m.id, m.lane_id, m.effect_id, m.endpoint_id, m.attempts, m.forgiven, m.sendings, m.created_at,
        m.deliver_before, h.error_message AS before
), history AS (
    INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor, reason,
        data)
    SELECT t.run_id, now(), 'effects_repeated', '', '', e.step_id, 0, 0, %(relay)s, '',
        format('message %%s of %%s goes out again with its old key: %%s', s.id, e.tool, c.cause),
        jsonb_build_object('cause', c.cause, 'effects', jsonb_build_array(e.id), 'keys', jsonb_build_array(e.key),
            'message', s.id, 'destination', t.destination, 'sendings', s.sendings)
    FROM started s JOIN taken t ON t.id = s.lane_id JOIN runs_effect e ON e.id = s.effect_id
    CROSS JOIN LATERAL (SELECT coalesce(nullif(s.before, ''), 'its relay was lost before its outcome was known') AS
        cause) c
    WHERE s.sendings > 1 AND coalesce(s.deliver_before > now(), true)
)
SELECT z.tenant_id, z.destination, z.number, y.* FROM (
    SELECT t.tenant_id, t.destination, t.number FROM turn t ORDER BY t.number DESC LIMIT 1) z
LEFT JOIN (
    SELECT t.id AS lane, t.claim, s.id, t.destination, t.tenant_id, n.slug, t.run_id, s.endpoint_id, e.id AS effect,
        e.key, encode(e.slot, 'hex') AS slot, e.request_hash, e.tool, e.resource, e.author_key, b.event_type, b.body,
        s.created_at, s.attempts, s.attempts - s.forgiven AS tries, s.sendings,
        extract(epoch FROM s.deliver_before - now())::float8 AS seconds_left,
        extract(epoch FROM now() - s.created_at)::float8 AS waited, t.number
    FROM taken t LEFT JOIN started s ON s.lane_id = t.id LEFT JOIN runs_effect e ON e.id = s.effect_id
    LEFT JOIN runs_outbox_body b ON b.effect_id = s.effect_id JOIN runs_tenant n ON n.id = t.tenant_id
) y ON true
ORDER BY y.number"""


def send_claim(cursor: Cursor, taker: Taker) -> None:
    """Send the claim; its answer is read with `claimed`."""
    busy = [{"tenant_id": t, "destination": name, "many": many} for (t, name), many in taker.under_way.items()]
    params = {
        "relay": taker.relay_id,
        "known": list(taker.known),
        "after_tenant": taker.after.tenant_id,
        "after": taker.after.destination,
        "slots": taker.slots,
        "share": taker.share,
        "busy": json.dumps(busy),
        "probe": taker.probe_seconds,
    }
    cursor.execute(_CLAIM, params)


def claimed(cursor: Cursor) -> Claimed:
    """What a claim that was sent came to."""
    rows = cursor.fetchall()
    if not rows:
        return Claimed(taken=[], after=Place(), walked=0)
    taken = [Taken(**dict(zip(_FIELDS, row[3:-1], strict=True))) for row in rows if row[3] is not None]
    # On behind the one served last; behind the last one looked at, if none was.
    tenant_id, destination = (taken[-1].tenant_id, taken[-1].destination) if taken else rows[0][:2]
    return Claimed(taken=taken, after=Place(tenant_id=tenant_id, destination=destination), walked=rows[0][2])


_FIELDS = tuple(Taken.__dataclass_fields__)
"""In the order of the claim's answer."""

"""What relays write about messages they took: what became of each, and that lanes are free which nobody holds.

Each statement compares the lane's claim under the lane's lock, as a fenced write does with the run's fence. The order
of locks is lanes, messages, bodies, effects; runs are locked before lanes, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from uuid import UUID

from runs.relaying import FAILURES
from runs.transitions import Cursor

SHORTEST_REST, LONGEST_REST = 1.0, 300.0
"""Seconds. In between, a destination rests for as long as it has been failing."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What became of an attempt."""

    lane: int
    claim: int
    message: int | None
    run: str
    resource: str
    """What it is about; not written."""
    outcome: str
    """`delivered`; `failed`, to be tried again; `poisoned`, not to be; `skipped`, for nobody wants it any more;
    `released`, not even tried."""
    unsent: bool = False
    """Whether it certainly never left."""
    pause: float = 0.0
    """Seconds until the lane may be claimed again."""
    error_class: str = ""
    error_message: str = ""
    result: str | None = None
    downstream_id: str = ""
    blames: bool = False
    """Whether the failure says something about the destination, and not only about this message."""
    rest: float = 0.0
    """Seconds for which the destination itself asked to be left alone."""


_SETTLED_COLUMNS = (
    "lane bigint, claim bigint, message bigint, outcome text, unsent bool, pause float8, error_class text,"
    " error_message text, result text, downstream_id text, blames bool, rest float8"
)
# A body is shared by the messages of one effect, which other relays may settle at this moment: locked in order first.
_SETTLE = f"""
WITH mine AS MATERIALIZED (
    SELECT x.*, l.tenant_id, l.destination, l.run_id
    FROM jsonb_to_recordset(%(settled)s::jsonb) AS x({_SETTLED_COLUMNS}) JOIN runs_outbox_lane l ON l.id = x.lane
    WHERE l.relay_id = %(relay)s AND l.claim = x.claim
    ORDER BY l.id FOR NO KEY UPDATE OF l
), told AS (
    UPDATE runs_outbox_message m SET
        state = CASE WHEN x.outcome IN ('delivered', 'poisoned', 'skipped') THEN x.outcome ELSE m.state END,
        finished_at = CASE WHEN x.outcome IN ('delivered', 'poisoned', 'skipped') THEN now() END,
        attempts = m.attempts - CASE WHEN x.outcome = 'released' AND x.unsent THEN 1 ELSE 0 END,
        sendings = m.sendings - CASE WHEN x.unsent THEN 1 ELSE 0 END,
        error_class = x.error_class, error_message = x.error_message
    FROM mine x WHERE m.id = x.message AND m.state = 'pending'
    RETURNING m.id, m.lane_id, m.effect_id, m.state, m.on_poison, m.attempts, m.sendings, x.run_id, x.destination,
        x.error_class, x.error_message, x.result, x.downstream_id
), lanes AS (
    UPDATE runs_outbox_lane l SET relay_id = NULL, claimed_at = NULL, due_at = now() + x.pause * interval '1 second',
        depth = l.depth - CASE WHEN t.state IN ('delivered', 'skipped')
            OR (t.state = 'poisoned' AND t.on_poison = 'skip') THEN 1 ELSE 0 END,
        held_by = CASE WHEN t.state = 'poisoned' AND t.on_poison = 'hold' THEN t.id END
    FROM mine x LEFT JOIN told t ON t.lane_id = x.lane WHERE l.id = x.lane
), done AS MATERIALIZED (
    SELECT t.effect_id, count(*) AS many, count(*) FILTER (WHERE t.state = 'delivered') AS delivered,
        max(t.result) AS result, max(t.downstream_id) AS downstream_id, max(t.sendings) AS sendings
    FROM told t WHERE t.state IN ('delivered', 'skipped') GROUP BY t.effect_id
), locked AS MATERIALIZED (
    SELECT b.effect_id FROM runs_outbox_body b WHERE b.effect_id IN (SELECT d.effect_id FROM done d)
    ORDER BY b.effect_id FOR NO KEY UPDATE OF b
), bodies AS (
    UPDATE runs_outbox_body b SET open_messages = b.open_messages - d.many,
        delivered_messages = b.delivered_messages + d.delivered
    FROM done d JOIN locked k ON k.effect_id = d.effect_id WHERE b.effect_id = d.effect_id
    RETURNING b.effect_id, b.open_messages, d.result, d.downstream_id, d.sendings,
        CASE WHEN b.open_messages > 0 THEN 'queued' WHEN b.delivered_messages > 0 THEN 'succeeded' ELSE 'given_up' END
            AS state
), effects AS (
    UPDATE runs_effect e SET attempts = greatest(e.attempts, b.sendings),
        state = CASE WHEN e.state = 'queued' THEN b.state ELSE e.state END,
        completed_at = CASE WHEN e.state = 'queued' AND b.state <> 'queued' THEN now() ELSE e.completed_at END,
        result = CASE WHEN e.state = 'succeeded' OR (e.state = 'queued' AND b.state = 'succeeded')
            THEN coalesce(b.result, e.result, 'null') ELSE e.result END,
        downstream_id = coalesce(nullif(b.downstream_id, ''), e.downstream_id), error_class = '', error_message = ''
    FROM bodies b WHERE e.id = b.effect_id
), poisoned AS (
    UPDATE runs_effect e SET attempts = greatest(e.attempts, t.sendings), error_class = t.error_class,
        error_message = t.error_message
    FROM told t WHERE t.state = 'poisoned' AND e.id = t.effect_id AND e.state = 'queued'
), history AS (
    INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor, reason,
        data)
    SELECT t.run_id, now(), 'message_' || t.state, '', '', e.step_id, 0, 0, %(relay)s, '',
        format('message %%s of %%s is not tried any more: %%s', t.id, e.tool, t.error_message),
        jsonb_build_object('message', t.id, 'effect', e.id, 'destination', t.destination, 'attempts', t.attempts,
            'sendings', t.sendings, 'holds_its_lane', t.state = 'poisoned' AND t.on_poison = 'hold', 'error',
            t.error_class)
    FROM told t JOIN runs_effect e ON e.id = t.effect_id WHERE t.state IN ('poisoned', 'skipped')
), answers AS MATERIALIZED (
    SELECT x.tenant_id, x.destination, bool_or(x.outcome = 'delivered') AS answers,
        count(*) FILTER (WHERE x.blames)::int AS failures, max(x.rest) AS rest, max(x.error_message) AS error_message
    FROM mine x GROUP BY x.tenant_id, x.destination
), back AS (
    UPDATE runs_outbox_destination d SET failures = 0, failing_since = NULL, open_until = NULL, error_message = ''
    FROM answers a WHERE a.answers AND d.tenant_id = a.tenant_id AND d.name = a.destination AND d.failures > 0
), failing AS (
    INSERT INTO runs_outbox_destination (tenant_id, name, failures, failing_since, open_until, error_message)
    SELECT a.tenant_id, a.destination, a.failures, now(), CASE WHEN a.failures >= {FAILURES} OR a.rest > 0
        THEN now() + greatest(a.rest, {SHORTEST_REST}) * interval '1 second' END, a.error_message
    FROM answers a WHERE a.failures > 0 AND NOT a.answers ORDER BY a.tenant_id, a.destination
    ON CONFLICT (tenant_id, name) DO UPDATE SET failures = runs_outbox_destination.failures + excluded.failures,
        failing_since = coalesce(runs_outbox_destination.failing_since, now()),
        open_until = CASE
            WHEN runs_outbox_destination.failures + excluded.failures >= {FAILURES} THEN greatest(excluded.open_until,
                now() + (0.8 + 0.4 * random()) * interval '1 second' * least({LONGEST_REST}, greatest({SHORTEST_REST},
                extract(epoch FROM now() - coalesce(runs_outbox_destination.failing_since, now())))))
            ELSE excluded.open_until END,
        error_message = excluded.error_message
)
SELECT x.lane FROM mine x"""

# For lanes under a relay's own name that it does not hold: the answer to a claim was lost. They were never sent.
_RELEASE_UNHELD = """
WITH lanes AS MATERIALIZED (
    SELECT l.id FROM runs_outbox_lane l WHERE l.relay_id = %(relay)s AND l.id <> ALL(%(held)s)
    ORDER BY l.id FOR NO KEY UPDATE
), told AS (
    UPDATE runs_outbox_message m SET attempts = m.attempts - 1, sendings = m.sendings - 1
    FROM lanes l WHERE m.id = (SELECT h.id FROM runs_outbox_message h WHERE h.lane_id = l.id AND h.state = 'pending'
        ORDER BY h.id LIMIT 1) AND m.sendings > 0
)
UPDATE runs_outbox_lane l SET relay_id = NULL, claimed_at = NULL, due_at = now()
FROM lanes f WHERE l.id = f.id RETURNING l.id"""

# Their messages may have been sent: the next sending is a repeat, and told as one.
_FREE = """
UPDATE runs_outbox_lane l SET relay_id = NULL, claimed_at = NULL, due_at = now()
FROM (SELECT k.id FROM runs_outbox_lane k JOIN runs_worker w ON w.id = k.relay_id
      WHERE k.relay_id IS NOT NULL AND w.ended_at IS NOT NULL ORDER BY k.id LIMIT 500 FOR NO KEY UPDATE OF k SKIP LOCKED
) f WHERE l.id = f.id RETURNING l.id"""

HAS_GONE = """
EXISTS (SELECT 1 FROM runs_outbox_lane l JOIN runs_worker w ON w.id = l.relay_id
        WHERE l.relay_id IS NOT NULL AND w.ended_at IS NOT NULL)"""
"""Whether a lane is held by a relay that has ended."""


def send_settle(cursor: Cursor, relay_id: UUID, settled: Iterable[Settled]) -> None:
    """Send what became of attempts; which of them still were this relay's is read with `accepted`."""
    rows = [asdict(each) for each in settled]
    cursor.execute(_SETTLE, {"relay": relay_id, "settled": json.dumps(rows)})


def accepted(cursor: Cursor) -> set[int]:
    """Ids of the lanes that were settled; the others were lost to somebody else, and nothing of them was written."""
    return {row[0] for row in cursor.fetchall()}


def release_unheld(cursor: Cursor, relay_id: UUID, *, held: Iterable[int]) -> int:
    """Free the lanes under a relay's name that it knows nothing of. Returns how many there were."""
    cursor.execute(_RELEASE_UNHELD, {"relay": relay_id, "held": list(held)})
    return len(cursor.fetchall())


def free_lanes(cursor: Cursor) -> int:
    """Free a batch of lanes of relays that have ended. Returns how many."""
    cursor.execute(_FREE)
    return len(cursor.fetchall())

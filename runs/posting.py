"""Posting: the part of a fenced write that puts messages into the outbox, with their effects, in the same commit."""

from __future__ import annotations

WEBHOOK = "webhook:"
"""What names of webhook destinations begin with; the endpoint's id follows. Handlers' names have no colon."""

COLUMNS = (
    "n int, slot text, key text, request_hash text, request_summary jsonb, step_id text, tool text, resource text,"
    " author_key text, scope text, destination text, event_type text, on_poison text, deliver_seconds float8, body text"
)

# In the order in which they are named. The run's row is locked by `run`; lanes come before anything else of the outbox,
# as for relays. An event that nobody subscribes to is done at once, without a message. A run that was asked to stop
# posts nothing more, whatever else it still commits.
#
# A slot that is taken by the same request is left alone: it is this very message, queued before. One that is taken by
# another request runs into the trigger that keeps request hashes final: the whole write is refused, and whoever made it
# learns of the conflict before its checkpoint stands.
CTES = f"""
addressed AS MATERIALIZED (
    SELECT x.n, x.slot, x.destination, NULL::uuid AS endpoint_id FROM x_messages x WHERE x.event_type = ''
    UNION ALL
    SELECT x.n, x.slot, '{WEBHOOK}' || p.id, p.id FROM x_messages x CROSS JOIN run
    JOIN runs_webhook_endpoint p ON p.tenant_id = run.tenant_id AND p.enabled
        AND (p.event_types = '[]'::jsonb OR p.event_types @> to_jsonb(x.event_type))
    WHERE x.event_type <> ''
), posted AS (
    INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
        author_key, safety, scope, state, attempts, reused, fence, intended_at, completed_at, result, downstream_id,
        error_class, error_message)
    SELECT run.id, run.tenant_id, decode(x.slot, 'hex'), x.key, x.request_hash, x.request_summary, x.step_id, x.tool,
        x.resource, x.author_key, 'outbox', x.scope, CASE WHEN a.some THEN 'queued' ELSE 'succeeded' END, 0, 0,
        run.fence, now(), CASE WHEN a.some THEN NULL ELSE now() END, CASE WHEN a.some THEN NULL ELSE 'null' END, '', '',
        ''
    FROM x_messages x CROSS JOIN run
    CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1 FROM addressed d WHERE d.n = x.n) AS some) a
    WHERE NOT run.cancel_requested
    ORDER BY x.n
    ON CONFLICT (slot) DO UPDATE SET request_hash = excluded.request_hash
        WHERE runs_effect.request_hash <> excluded.request_hash
    RETURNING id, encode(slot, 'hex') AS slot
), lanes AS (
    INSERT INTO runs_outbox_lane (run_id, tenant_id, destination, depth, due_at)
    SELECT run.id, run.tenant_id, a.destination, count(*), now()
    FROM addressed a JOIN posted p ON p.slot = a.slot CROSS JOIN run
    GROUP BY run.id, run.tenant_id, a.destination ORDER BY a.destination
    ON CONFLICT (run_id, destination) DO UPDATE SET depth = runs_outbox_lane.depth + excluded.depth,
        due_at = CASE WHEN runs_outbox_lane.depth = 0 THEN excluded.due_at ELSE runs_outbox_lane.due_at END
    RETURNING id, destination
), bodies AS (
    INSERT INTO runs_outbox_body (effect_id, event_type, body, open_messages, delivered_messages)
    SELECT p.id, x.event_type, x.body, a.many, 0
    FROM posted p JOIN x_messages x ON x.slot = p.slot
    CROSS JOIN LATERAL (SELECT count(*) AS many FROM addressed d WHERE d.n = x.n) a
    WHERE a.many > 0
), messages AS (
    INSERT INTO runs_outbox_message (lane_id, effect_id, tenant_id, endpoint_id, state, on_poison, attempts, sendings,
        created_at, deliver_before, error_class, error_message)
    SELECT l.id, p.id, run.tenant_id, a.endpoint_id, 'pending', x.on_poison, 0, 0, now(),
        now() + x.deliver_seconds * interval '1 second', '', ''
    FROM addressed a JOIN x_messages x ON x.n = a.n JOIN posted p ON p.slot = a.slot
    JOIN lanes l ON l.destination = a.destination CROSS JOIN run
    ORDER BY x.n, a.destination
)"""

POSTED = "(SELECT jsonb_object_agg(p.slot, p.id) FROM posted p)"
"""Slot to id of the effects that were made."""
EFFECTS_THROUGH = "greatest(%(cp_effects)s, (SELECT max(p.id) FROM posted p))"
"""A checkpoint covers the effects that are made with it."""
CONFLICT = "effect_outcome_is_final"
"""The trigger that refuses a second request for a slot."""

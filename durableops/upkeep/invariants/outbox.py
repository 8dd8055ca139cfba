"""The outbox: lanes that count their messages, which something will deliver; effects that follow. Promises 3, 4, 7."""

from __future__ import annotations

from durableops.upkeep.invariants.check import HISTORIES, NEWEST, SETTLED, Check
from runs.posting import WEBHOOK

_LANES = "every lane that is not empty"
_OPEN = "l.depth > 0 OR l.held_by IS NOT NULL"
_RESTS = """EXISTS (SELECT 1 FROM runs_outbox_destination d WHERE d.tenant_id = l.tenant_id
    AND d.name = l.destination AND (d.open_until > now() OR d.stopped_by <> ''))"""
_SWITCHED = """EXISTS (SELECT 1 FROM runs_pause_switch s
    WHERE s.scope = 'all' OR (s.scope = 'tenant' AND s.tenant_id = l.tenant_id))"""
_READY = f"l.depth > 0 AND l.relay_id IS NULL AND l.held_by IS NULL AND l.due_at < {SETTLED}"

CHECKS = (
    Check(
        name="lane_counts_its_messages",
        promise=7,
        looks_at=f"{_LANES}, and every pending message",
        broken=f"""
            SELECT l.id, format('it counts %%s messages and has %%s', l.depth, m.there)
            FROM runs_outbox_lane l JOIN LATERAL (
                SELECT count(*) AS there FROM runs_outbox_message m
                WHERE m.lane_id = l.id AND (m.state = 'pending' OR m.id = l.held_by)) m ON true
            WHERE ({_OPEN}) AND l.depth <> m.there
            UNION ALL
            SELECT l.id, format('message %%s is pending in a lane that counts none', m.id)
            FROM runs_outbox_message m JOIN runs_outbox_lane l ON l.id = m.lane_id
            WHERE m.state = 'pending' AND l.depth = 0""",
    ),
    Check(
        name="lane_is_held_by_a_poisoned_message_of_its_own",
        promise=7,
        looks_at="every lane that is held",
        broken="""
            SELECT l.id, format('message %%s holds it and is %%s', l.held_by, coalesce(m.state, 'missing'))
            FROM runs_outbox_lane l LEFT JOIN runs_outbox_message m ON m.id = l.held_by AND m.lane_id = l.id
            WHERE l.held_by IS NOT NULL AND m.state IS DISTINCT FROM 'poisoned'""",
        explained="""
            SELECT l.id, format('message %%s of run %%s to %%s waits for a person: %%s', m.id, l.run_id, l.destination,
                m.error_message)
            FROM runs_outbox_lane l JOIN runs_outbox_message m ON m.id = l.held_by""",
    ),
    Check(
        name="claimed_lane_has_a_living_relay",
        promise=7,
        looks_at="every lane in a relay's hand",
        broken=f"""
            SELECT l.id, CASE WHEN w.id IS NULL THEN 'its relay is not on record'
                ELSE format('its relay ended at %%s: %%s', w.ended_at, w.ended_why) END
            FROM runs_outbox_lane l LEFT JOIN runs_worker w ON w.id = l.relay_id
            WHERE l.relay_id IS NOT NULL AND (w.id IS NULL OR w.ended_at < {SETTLED})""",
    ),
    Check(
        name="message_that_is_due_has_a_living_relay_that_knows_its_destination",
        promise=7,
        looks_at="every lane whose head is due",
        broken=f"""
            SELECT l.id, format('%%s messages to %%s are due since %%s; no living relay knows it', l.depth,
                l.destination, l.due_at)
            FROM runs_outbox_lane l WHERE {_READY} AND NOT {_RESTS} AND NOT {_SWITCHED} AND NOT EXISTS (
                SELECT 1 FROM runs_worker w WHERE w.ended_at IS NULL AND w.kind = 'relay'
                  AND (starts_with(l.destination, '{WEBHOOK}') OR w.destinations @> to_jsonb(l.destination)))""",
        explained=f"""
            SELECT l.id, format('%%s messages to %%s wait: %%s', l.depth, l.destination, CASE WHEN {_SWITCHED}
                THEN 'a switch is set' ELSE 'the destination rests, or somebody stopped it' END)
            FROM runs_outbox_lane l WHERE {_READY} AND ({_RESTS} OR {_SWITCHED})""",
    ),
    Check(
        name="effect_follows_its_messages",
        promise=3,
        looks_at=f"the messages of {HISTORIES}",
        broken=f"""
            SELECT e.id, format('it is %%s, %%s of its messages are open and %%s were delivered', e.state, m.open,
                m.delivered)
            FROM runs_effect e JOIN runs_outbox_body b ON b.effect_id = e.id JOIN LATERAL (
                SELECT count(*) FILTER (WHERE m.state IN ('pending', 'poisoned')) AS open,
                    count(*) FILTER (WHERE m.state = 'delivered') AS delivered
                FROM runs_outbox_message m WHERE m.effect_id = e.id) m ON true
            WHERE e.run_id IN {NEWEST} AND (b.open_messages <> m.open
                OR (e.state = 'queued' AND m.open = 0) OR (e.state = 'succeeded' AND m.delivered = 0 AND m.open = 0))
            """,
    ),
    Check(
        name="delivered_message_was_sent_and_its_repeats_name_their_reason",
        promise=4,
        looks_at=f"the messages of {HISTORIES}",
        broken=f"""
            SELECT m.id, format('it is %%s, was sent %%s times, and %%s repeats are explained', m.state, m.sendings,
                v.reasons)
            FROM runs_outbox_message m JOIN runs_outbox_lane l ON l.id = m.lane_id JOIN LATERAL (
                SELECT count(*) AS reasons FROM runs_event v WHERE v.run_id = l.run_id
                    AND v.event = 'effects_repeated' AND v.data -> 'message' = to_jsonb(m.id)) v ON true
            WHERE l.run_id IN {NEWEST}
              AND ((m.state = 'delivered' AND m.sendings = 0) OR m.sendings - 1 > v.reasons)""",
    ),
)

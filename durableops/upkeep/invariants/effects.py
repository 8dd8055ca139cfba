"""Effects: intent before call, one outcome for each slot, no repeat without its reason. Promises 3 and 4."""

from __future__ import annotations

from durableops.upkeep.invariants.check import HISTORIES, NEWEST, SETTLED, Check
from runs.queues import able

_OF = f"e.run_id IN {NEWEST}"
_EFFECTS = f"the effects of {HISTORIES}"

CHECKS = (
    Check(
        name="no_result_before_its_intent",
        promise=3,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.id, format('intended at %%s, outcome at %%s', e.intended_at, e.completed_at)
            FROM runs_effect e WHERE e.completed_at < e.intended_at AND {_OF}""",
    ),
    Check(
        name="effect_has_the_result_its_state_says",
        promise=3,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.id, format('it is %%s and its result is %%s', e.state,
                CASE WHEN e.result IS NULL THEN 'missing' ELSE 'there' END)
            FROM runs_effect e WHERE {_OF} AND (
                (e.state = 'succeeded' AND e.result IS NULL AND e.error_class = '' AND NOT EXISTS (
                    SELECT 1 FROM runs_artifact a WHERE a.run_id = e.run_id AND a.name = 'result/' || e.key))
                OR (e.state IN ('queued', 'intended', 'withdrawn', 'given_up') AND e.result IS NOT NULL))""",
    ),
    Check(
        name="result_is_recorded_before_the_checkpoint_that_relies_on_it",
        promise=3,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.id, format('its result came at %%s, checkpoint %%s of run %%s relied on it at %%s',
                e.completed_at, c.seq, c.run_id, c.at)
            FROM runs_effect e JOIN LATERAL (
                SELECT k.run_id, k.seq, k.at FROM runs_checkpoint k
                WHERE k.run_id = e.run_id AND k.step_id = e.step_id AND k.effects_through >= e.id ORDER BY k.seq LIMIT 1
            ) c ON true
            -- A later lineage may find out what an earlier one had left.
            WHERE e.state = 'succeeded' AND e.completed_at > c.at AND e.safety <> 'outbox' AND {_OF}
              AND EXISTS (SELECT 1 FROM runs_run r WHERE r.id = e.run_id AND r.lineage = 1)""",
        explained=f"""
            SELECT e.id, format('%%s for %%L was left without an outcome; step %%L went on', e.tool,
                e.resource, e.step_id)
            FROM runs_effect e WHERE e.state = 'in_doubt' AND {_OF} AND EXISTS (
                SELECT 1 FROM runs_checkpoint c
                WHERE c.run_id = e.run_id AND c.step_id = e.step_id AND c.effects_through >= e.id)""",
    ),
    Check(
        name="slot_has_one_effect",
        promise=4,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.run_id, format('%%s effects of %%s for %%L%%s', count(*), e.tool, e.resource,
                CASE WHEN e.author_key = '' THEN '' ELSE format(' (key %%L)', e.author_key) END)
            FROM runs_effect e WHERE e.safety <> 'read' AND e.scope = 'run' AND {_OF}
            GROUP BY e.run_id, e.step_id, e.tool, e.resource, e.author_key HAVING count(*) > 1
            UNION ALL
            SELECT min(e.run_id::text)::uuid, format('%%s effects of %%s for %%L in the whole tenant',
                count(*), e.tool, e.resource)
            FROM runs_effect e WHERE e.safety <> 'read' AND e.scope = 'tenant' AND {_OF}
            GROUP BY e.tenant_id, e.tool, e.resource, e.author_key HAVING count(*) > 1""",
    ),
    Check(
        name="repeated_call_names_its_reason",
        promise=4,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.id, format('sent %%s times, explained %%s times', e.attempts, v.reasons)
            FROM runs_effect e JOIN LATERAL (
                SELECT count(*) AS reasons FROM runs_event v
                WHERE v.run_id = e.run_id AND v.event = 'effects_repeated' AND v.data -> 'effects' @> to_jsonb(e.id)
            ) v ON true
            JOIN LATERAL (
                SELECT coalesce(max((v.data ->> 'attempts_before')::int) - 1, 0) AS earlier FROM runs_event v
                WHERE v.run_id = e.run_id AND v.event = 'effect_taken_over' AND v.data -> 'effect' = to_jsonb(e.id)
            ) t ON true
            -- Somebody found out that it had not happened, and had it sent again.
            JOIN LATERAL (SELECT count(*) AS told FROM runs_doubt d
                WHERE d.effect_id = e.id AND d.settled_as = 'did_not') d ON true
            WHERE e.attempts > 1 AND e.safety <> 'read' AND e.attempts - 1 > v.reasons + d.told + t.earlier
                AND {_OF}""",
    ),
    Check(
        name="effect_without_an_outcome_has_somebody_at_it",
        promise=3,
        looks_at="every effect on the wire",
        broken=f"""
            SELECT e.id, format('%%s for %%L, intended at %%s: %%s', e.tool, e.resource, e.intended_at, CASE
                WHEN r.finished_at IS NOT NULL THEN format('its run is %%s', r.state)
                WHEN e.safety = 'legacy' THEN format('its sender had fence %%s, its run is %%s at %%s', e.fence,
                    r.state, r.fence)
                ELSE format('step %%L went on without it', e.step_id) END)
            FROM runs_effect e JOIN runs_run r ON r.id = e.run_id
            JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = r.head_seq
            WHERE e.state = 'intended' AND e.safety <> 'outbox' AND e.intended_at < {SETTLED}
              AND (r.finished_at < {SETTLED}
                OR (e.safety = 'legacy' AND r.state_since < {SETTLED}
                    AND NOT (r.state = 'running' AND r.fence = e.fence))
                OR (e.scope = 'run' AND e.intended_at < c.at AND e.id <= c.effects_through AND c.at < {SETTLED}))""",
    ),
    Check(
        name="effect_in_doubt_has_one_open_doubt",
        promise=3,
        looks_at="every effect in doubt and every open doubt",
        broken=f"""
            SELECT e.id, format('%%s for %%L is in doubt and nobody is asked', e.tool, e.resource)
            FROM runs_effect e WHERE e.state = 'in_doubt' AND e.safety <> 'outbox' AND e.intended_at < {SETTLED}
              AND NOT EXISTS (SELECT 1 FROM runs_doubt d WHERE d.effect_id = e.id AND d.settled_at IS NULL)
            UNION ALL
            SELECT e.id, format('doubt %%s about it is open, and it is %%s', d.id, e.state)
            FROM runs_doubt d JOIN runs_effect e ON e.id = d.effect_id
            WHERE d.settled_at IS NULL AND e.state <> 'in_doubt'""",
    ),
    Check(
        name="one_call_at_a_time_goes_to_a_legacy_system",
        promise=4,
        looks_at="every call on the wire to a legacy system",
        broken="""
            SELECT min(e.id), format('%%s calls hold system %%L', count(*), e.system)
            FROM runs_effect e WHERE e.holds_system GROUP BY e.system HAVING count(*) > 1
            UNION ALL
            SELECT e.id, format('it is %%s and holds system %%L', e.state, e.system)
            FROM runs_effect e WHERE e.holds_system AND e.state NOT IN ('intended', 'in_doubt')""",
    ),
    Check(
        name="queued_call_has_a_waker",
        promise=7,
        looks_at="every call that waits for its turn at a legacy system",
        broken=f"""
            SELECT o.id, format('its run is %%s: nobody asks for its turn', r.state)
            FROM runs_effect o JOIN runs_run r ON r.id = o.run_id
            WHERE o.state = 'queued' AND o.safety = 'legacy' AND r.finished_at < {SETTLED}
            UNION ALL
            SELECT h.id, format('system %%L is free since before %%s, and run %%s, which is next, was not woken',
                s.name, h.since, h.run_id)
            FROM runs_system s CROSS JOIN LATERAL (
                SELECT o.id, o.run_id, r.state, r.state_since AS since
                FROM runs_effect o JOIN runs_run r ON r.id = o.run_id
                WHERE o.system = s.name AND o.state = 'queued' AND o.safety = 'legacy' AND {able("r")}
                ORDER BY o.queue_order LIMIT 1) h
            WHERE NOT s.paused AND h.state = 'waiting' AND h.since < {SETTLED} AND NOT EXISTS (
                SELECT 1 FROM runs_effect x WHERE x.system = s.name AND x.holds_system)
              AND NOT EXISTS (SELECT 1 FROM runs_effect x WHERE x.system = s.name AND x.completed_at > {SETTLED})""",
        explained="""
            SELECT o.id, CASE WHEN s.paused THEN format('system %%s is paused by %%s', s.name, s.paused_by)
                WHEN r.paused THEN format('its run is paused by %%s', r.paused_by)
                ELSE format('a call in doubt (effect %%s) holds system %%s', x.id, s.name) END
            FROM runs_effect o JOIN runs_run r ON r.id = o.run_id JOIN runs_system s ON s.name = o.system
            LEFT JOIN runs_effect x ON x.system = s.name AND x.holds_system AND x.state = 'in_doubt'
            WHERE o.state = 'queued' AND o.safety = 'legacy' AND (s.paused OR r.paused OR x.id IS NOT NULL)""",
    ),
    Check(
        name="effect_was_written_under_a_fence_its_run_had",
        promise=1,
        looks_at=_EFFECTS,
        broken=f"""
            SELECT e.id, format('fence %%s, while its run is at %%s', e.fence, r.fence)
            FROM runs_effect e JOIN runs_run r ON r.id = e.run_id WHERE e.fence > r.fence AND {_OF}""",
    ),
)

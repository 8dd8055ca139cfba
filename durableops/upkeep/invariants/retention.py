"""What retention promises: nothing that somebody still needs has gone, and what went was recorded."""

from __future__ import annotations

from durableops.upkeep.invariants.check import SETTLED, Check

# Nobody needs a temporary file or a raw prompt to find out what happened.
_GONE = "s.cleaned - 'temp_file' - 'raw_prompt'"

CHECKS = (
    Check(
        name="open_run_is_whole",
        promise=14,
        looks_at="every open run that had ended before",
        broken="""
            SELECT r.id, format('it is %%s, and %%s of it had gone at %%s', r.state, s.cleaned, s.closed_at)
            FROM runs_run r JOIN runs_summary s ON s.run_id = r.id
            WHERE r.finished_at IS NULL AND s.closed_at IS NOT NULL""",
    ),
    Check(
        name="what_is_not_settled_is_whole",
        promise=14,
        looks_at="every effect without an outcome and everything that is owed",
        broken=f"""
            SELECT e.id, format('it is %%s, and what tells about it had gone: %%s', e.state, s.cleaned)
            FROM runs_effect e JOIN runs_summary s ON s.run_id = e.run_id
            WHERE e.state IN ('queued', 'intended', 'in_doubt') AND {_GONE} <> '{{}}'
            UNION ALL
            SELECT c.effect_id, format('undoing it is %%s, and what tells about it had gone: %%s', c.state, s.cleaned)
            FROM runs_compensation c JOIN runs_summary s ON s.run_id = c.run_id
            WHERE c.state NOT IN ('done', 'waived') AND {_GONE} <> '{{}}'""",
    ),
    Check(
        name="what_is_held_by_law_is_whole",
        promise=14,
        looks_at="runs under a legal hold that were cleaned",
        broken="""
            SELECT s.run_id, format('legal hold %%s stands since %%s, and %%s had gone at %%s', h.id, h.placed_at,
                g.key, g.value)
            FROM runs_legal_hold h
            JOIN runs_run r ON r.tenant_id = h.tenant_id AND (h.scope = 'tenant' OR r.id = h.run_id
                OR (h.scope = 'label' AND r.labels ->> h.label = h.value))
            JOIN runs_summary s ON s.run_id = r.id CROSS JOIN LATERAL jsonb_each_text(s.cleaned) g
            WHERE h.lifted_at IS NULL AND g.value::timestamptz > h.placed_at + interval '1 minute'""",
    ),
    Check(
        name="finished_run_is_looked_at",
        promise=14,
        looks_at="finished runs, the oldest first",
        broken=f"""
            SELECT x.id, format('it ended at %%s and was not looked at since', x.finished_at)
            FROM (SELECT r.id, r.finished_at FROM runs_run r WHERE r.finished_at IS NOT NULL AND r.retain_at IS NULL
                  ORDER BY r.finished_at LIMIT 1) x
            WHERE x.finished_at < {SETTLED} - interval '1 day'""",
    ),
)

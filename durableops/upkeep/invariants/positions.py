"""Checkpoints: one writer, dense numbers, committed steps once, cursors that only grow. Promises 1, 2, 5 and 13."""

from __future__ import annotations

from durableops.upkeep.invariants.check import HISTORIES, NEWEST, Check
from runs.models.lineage import LINEAGE_KINDS

_CHECKPOINTS = f"the checkpoints of {HISTORIES}"
_OF = f"c.run_id IN {NEWEST}"
_NOT_BY_WORKERS = ", ".join(f"'{kind}'" for kind in ("start", *LINEAGE_KINDS))

CHECKS = (
    Check(
        name="each_claim_has_a_fence_of_its_own",
        promise=1,
        looks_at=f"the claims of {HISTORIES}",
        broken=f"""
            SELECT v.run_id, format('fence %%s was claimed %%s times', v.fence, count(*))
            FROM runs_event v WHERE v.event = 'claim' AND v.run_id IN {NEWEST}
            GROUP BY v.run_id, v.fence HAVING count(*) > 1
            UNION ALL
            SELECT r.id, format('it is at fence %%s and was claimed under a higher one', r.fence) FROM runs_run r
            WHERE r.id IN {NEWEST} AND EXISTS (
                SELECT 1 FROM runs_event v WHERE v.run_id = r.id AND v.event = 'claim' AND v.fence > r.fence)""",
    ),
    Check(
        name="fences_of_checkpoints_never_fall",
        promise=1,
        looks_at=_CHECKPOINTS,
        broken=f"""
            SELECT x.run_id, format('checkpoint %%s has fence %%s after fence %%s', x.seq, x.fence, x.before)
            FROM (SELECT c.run_id, c.seq, c.fence, lag(c.fence) OVER (PARTITION BY c.run_id ORDER BY c.seq) AS before
                  FROM runs_checkpoint c WHERE {_OF}) x
            WHERE x.fence < x.before""",
    ),
    Check(
        name="checkpoint_was_written_by_the_worker_that_held_the_run",
        promise=1,
        looks_at=_CHECKPOINTS,
        broken=f"""
            SELECT c.run_id, format('checkpoint %%s was written by %%s under fence %%s, which %%s had claimed',
                c.seq, c.worker_id, c.fence, coalesce(h.worker_id::text, 'nobody'))
            FROM runs_checkpoint c LEFT JOIN LATERAL (
                SELECT v.worker_id FROM runs_event v
                WHERE v.run_id = c.run_id AND v.event = 'claim' AND v.fence <= c.fence ORDER BY v.fence DESC LIMIT 1
            ) h ON true
            WHERE c.kind NOT IN ({_NOT_BY_WORKERS}) AND c.worker_id IS DISTINCT FROM h.worker_id AND {_OF}""",
    ),
    Check(
        name="committed_step_ran_once",
        promise=2,
        looks_at=_CHECKPOINTS,
        broken=f"""
            SELECT c.run_id, format('step %%L was committed %%s times in lineage %%s', c.step_id, count(*), c.lineage)
            FROM runs_checkpoint c WHERE c.kind IN ('step', 'finish') AND {_OF}
            GROUP BY c.run_id, c.lineage, c.step_id HAVING count(*) > 1""",
    ),
    Check(
        name="checkpoint_numbers_are_dense",
        promise=5,
        looks_at=_CHECKPOINTS,
        broken=f"""
            SELECT c.run_id, format('%%s checkpoints, numbered %%s to %%s', count(*), min(c.seq), max(c.seq))
            FROM runs_checkpoint c WHERE {_OF}
            GROUP BY c.run_id HAVING min(c.seq) <> 0 OR count(*) <> max(c.seq) + 1
            UNION ALL
            SELECT x.run_id, format('checkpoint %%s goes back from lineage %%s to %%s', x.seq, x.before, x.lineage)
            FROM (SELECT c.run_id, c.seq, c.lineage, lag(c.lineage) OVER (PARTITION BY c.run_id ORDER BY c.seq)
                AS before
                  FROM runs_checkpoint c WHERE {_OF}) x
            WHERE x.lineage < x.before""",
    ),
    Check(
        name="head_is_the_newest_checkpoint",
        promise=5,
        looks_at=HISTORIES,
        broken=f"""
            SELECT r.id, format('its head is %%s, its newest checkpoint %%s', r.head_seq,
                coalesce(m.seq::text, 'missing'))
            FROM runs_run r LEFT JOIN LATERAL (
                SELECT max(c.seq) AS seq FROM runs_checkpoint c WHERE c.run_id = r.id) m ON true
            WHERE r.id IN {NEWEST} AND m.seq IS DISTINCT FROM r.head_seq
            UNION ALL
            SELECT r.id, format('it is at step %%L, its newest checkpoint leads to %%L', r.step_id, c.next_step)
            FROM runs_run r JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = r.head_seq
            WHERE r.finished_at IS NULL AND c.next_step <> r.step_id""",
    ),
    Check(
        name="state_of_a_run_is_on_record",
        promise=5,
        looks_at=HISTORIES,
        broken=f"""
            SELECT r.id, format('checkpoint %%s, which should hold its state, %%s', r.state_seq,
                CASE WHEN c.run_id IS NULL THEN 'is missing' ELSE 'is empty' END)
            FROM runs_run r LEFT JOIN runs_checkpoint c ON c.run_id = r.id AND c.seq = r.state_seq
            WHERE r.id IN {NEWEST} AND c.state IS NULL
            UNION ALL
            SELECT r.id, format('it reads its state from checkpoint %%s, its newest one names %%s',
                r.state_seq, h.state_seq)
            FROM runs_run r JOIN runs_checkpoint h ON h.run_id = r.id AND h.seq = r.head_seq
            WHERE r.id IN {NEWEST} AND h.state_seq <> r.state_seq""",
    ),
    # Text compares by code point, as the engine does. Lists are compared only where all of their parts are numbers.
    Check(
        name="cursor_never_goes_back",
        promise=5,
        looks_at=f"{_CHECKPOINTS} with a cursor that is a number, a text or a list of numbers",
        broken=f"""
            SELECT x.run_id, format('step %%L: cursor %%s after %%s at checkpoint %%s', x.step_id,
                x.cursor, x.before, x.seq)
            FROM (SELECT c.run_id, c.step_id, c.seq, c.cursor,
                    lag(c.cursor) OVER (PARTITION BY c.run_id, c.lineage, c.step_id ORDER BY c.seq) AS before
                  FROM runs_checkpoint c WHERE c.kind = 'page' AND {_OF}) x
            WHERE jsonb_typeof(x.cursor) = jsonb_typeof(x.before) AND CASE jsonb_typeof(x.cursor)
                WHEN 'number' THEN x.cursor <= x.before
                WHEN 'string' THEN (x.cursor #>> '{{}}') COLLATE "C" <= (x.before #>> '{{}}') COLLATE "C"
                WHEN 'array' THEN x.cursor <= x.before AND NOT jsonb_path_exists(
                    jsonb_build_array(x.cursor, x.before), '$[*][*] ? (@.type() != "number")')
                ELSE x.before = x.cursor END""",
    ),
    Check(
        name="run_stands_in_the_plan_it_made",
        promise=13,
        looks_at="open runs with a plan of their own",
        broken="""
            SELECT r.id, format('it stands at step %%L, which plan %%s of its own does not have', r.step_id, p.number)
            FROM runs_run r JOIN LATERAL (
                SELECT m.number, m.steps FROM runs_made_plan m WHERE m.run_id = r.id AND NOT EXISTS (
                    SELECT 1 FROM runs_lineage l
                    WHERE l.run_id = m.run_id AND l.number > m.lineage AND m.seq > l.from_seq)
                ORDER BY m.seq DESC LIMIT 1) p ON true
            WHERE r.own_plan AND r.finished_at IS NULL AND NOT p.steps ? r.step_id
            UNION ALL
            SELECT m.run_id, format('plan %%s says it was made at checkpoint %%s, which is not there', m.number, m.seq)
            FROM runs_made_plan m JOIN runs_run r ON r.id = m.run_id
            WHERE r.finished_at IS NULL AND NOT EXISTS (
                SELECT 1 FROM runs_checkpoint c WHERE c.run_id = m.run_id AND c.seq = m.seq)""",
    ),
    Check(
        name="plan_of_a_checkpoint_is_kept",
        promise=13,
        looks_at=_CHECKPOINTS,
        broken=f"""
            SELECT c.run_id, format('checkpoint %%s was written under plan %%s, which is gone', c.seq, c.plan_id)
            FROM runs_checkpoint c WHERE {_OF} AND NOT EXISTS (SELECT 1 FROM runs_workflow_plan p
                WHERE p.id = c.plan_id)""",
    ),
)

"""Compensation: what is owed is listed and worked on, in order, proved, and agreed on by two where two are asked."""

from __future__ import annotations

from durableops.upkeep.invariants.check import SETTLED, Check

_OPEN = "c.state NOT IN ('done', 'waived')"

CHECKS = (
    Check(
        name="ordered_compensation_is_listed",
        promise=7,
        looks_at="every order that was not applied",
        broken=f"""
            SELECT o.run_id, format('%%s ordered %%L at %%s; the run ended at %%s and nothing came of it',
                o.actor, o.choice, o.at, r.finished_at)
            FROM runs_compensation_order o JOIN runs_run r ON r.id = o.run_id
            WHERE o.applied_at IS NULL AND r.finished_at < {SETTLED} AND NOT EXISTS (
                SELECT 1 FROM runs_run k WHERE k.parent_id = r.id
                AND (k.finished_at IS NULL OR k.finished_at > {SETTLED}))""",
    ),
    Check(
        name="compensation_that_was_begun_is_worked_on",
        promise=7,
        looks_at="every compensation that is not settled",
        broken=f"""
            SELECT c.id, format('it is %%s since %%s; run %%s, which undoes it, ended at %%s', c.state, c.state_since,
                r.id, r.finished_at)
            FROM runs_compensation c JOIN runs_run r ON r.id = c.linked_run_id
            WHERE {_OPEN} AND r.finished_at < {SETTLED}
            UNION ALL
            SELECT c.id, format('it is %%s and no run undoes it', c.state) FROM runs_compensation c
            WHERE c.state IN ('approved', 'running', 'failed') AND c.linked_run_id IS NULL""",
        explained="""
            SELECT c.id, format('%%s for %%L is owed since %%s; a person decides', e.tool, e.resource, c.owed_at)
            FROM runs_compensation c JOIN runs_effect e ON e.id = c.effect_id WHERE c.state = 'owed'""",
    ),
    Check(
        name="compensation_goes_newest_first",
        promise=7,
        looks_at="every compensation that was begun and is not settled",
        broken="""
            SELECT c.id, format('it is %%s while %%s, of a newer effect of the same order, is %%s', c.state, n.id,
                n.state)
            FROM runs_compensation c JOIN runs_compensation n
              ON n.linked_run_id = c.linked_run_id AND n.effect_id > c.effect_id
            WHERE c.state IN ('running', 'failed') AND n.state NOT IN ('done', 'waived')""",
    ),
    Check(
        name="compensation_by_a_tool_names_the_call_that_undid_it",
        promise=3,
        looks_at="every compensation done by a run",
        broken="""
            SELECT c.id, format('effect %%s, which undid it, is %%s', c.undo_effect_id, coalesce(e.state, 'gone'))
            FROM runs_compensation c LEFT JOIN runs_effect e ON e.id = c.undo_effect_id
            WHERE c.state = 'done' AND c.evidence = '' AND e.state IS DISTINCT FROM 'succeeded'
                AND e.state IS DISTINCT FROM 'queued'""",
    ),
    Check(
        name="effect_is_undone_once",
        promise=4,
        looks_at="every call that undid something",
        broken="""
            SELECT c.undo_effect_id, format('it undid %%s effects', count(*)) FROM runs_compensation c
            WHERE c.undo_effect_id IS NOT NULL GROUP BY c.undo_effect_id HAVING count(*) > 1""",
    ),
    Check(
        name="four_eyes_are_two_people",
        promise=15,
        looks_at="every compensation that wants two people",
        broken="""
            SELECT c.id, format('proposed by %%s, approved by %%s', c.proposed_by, c.approved_by)
            FROM runs_compensation c WHERE c.four_eyes AND c.state = 'done'
              AND (c.approved_by = '' OR c.approved_by = c.proposed_by)""",
    ),
    Check(
        name="compensation_stays_in_its_tenant",
        promise=16,
        looks_at="every compensation that is not settled",
        broken=f"""
            SELECT c.id, 'its effect, its run or the run that undoes it belongs to another tenant'
            FROM runs_compensation c JOIN runs_effect e ON e.id = c.effect_id JOIN runs_run r ON r.id = c.run_id
            LEFT JOIN runs_run l ON l.id = c.linked_run_id
            WHERE {_OPEN} AND (e.tenant_id <> c.tenant_id OR r.tenant_id <> c.tenant_id OR e.run_id <> c.run_id
                OR l.tenant_id <> c.tenant_id)""",
    ),
)

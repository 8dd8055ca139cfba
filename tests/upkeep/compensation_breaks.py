"""How the record of compensation is broken by hand, for each check about it."""

from __future__ import annotations

BREAKS: list[tuple[str, str]] = [
    (
        "ordered_compensation_is_listed",
        """UPDATE runs_compensation_order SET applied_at = NULL, linked_run_id = NULL;
        UPDATE runs_run SET finished_at = now() - interval '1 hour' WHERE state = 'cancelled'""",
    ),
    (
        "compensation_that_was_begun_is_worked_on",
        """UPDATE runs_run SET state = 'failed', finished_at = now() - interval '1 hour'
        WHERE id IN (SELECT linked_run_id FROM runs_compensation)""",
    ),
    ("compensation_that_was_begun_is_worked_on", "UPDATE runs_compensation SET linked_run_id = NULL"),
    (
        "compensation_goes_newest_first",
        "UPDATE runs_compensation SET state = 'approved', settled_at = NULL, settled_by = '' WHERE state = 'done'",
    ),
    (
        "compensation_by_a_tool_names_the_call_that_undid_it",
        "UPDATE runs_compensation SET undo_effect_id = 1 WHERE undo_effect_id IS NOT NULL",
    ),
    (
        "effect_is_undone_once",
        "UPDATE runs_compensation SET undo_effect_id = (SELECT max(undo_effect_id) FROM runs_compensation)",
    ),
    ("four_eyes_are_two_people", "UPDATE runs_compensation SET four_eyes = true, approved_by = ''"),
    ("compensation_stays_in_its_tenant", "UPDATE runs_compensation SET tenant_id = 0"),
]

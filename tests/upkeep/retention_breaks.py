"""How the record is broken by hand for each check about retention."""

from __future__ import annotations

_CLOSE = """
INSERT INTO runs_summary (run_id, finished_at, version, checkpoints, effects, output_hash, deliverables, written_at,
    cleaned, kept, closed_at)
SELECT id, now(), 1, 1, '{}', '', '[]', now(), '{"checkpoint": "2999-01-01T00:00:00Z"}', '{}', now() FROM runs_run"""

BREAKS: list[tuple[str, str]] = [
    ("open_run_is_whole", _CLOSE),
    ("what_is_not_settled_is_whole", _CLOSE),
    (
        "what_is_not_settled_is_whole",
        f"""{_CLOSE}; UPDATE runs_effect SET state = 'succeeded', completed_at = now() WHERE completed_at IS NULL;
        INSERT INTO runs_compensation (effect_id, run_id, tenant_id, state, state_since, how, tool, instructions,
            four_eyes, because, owed_at, spent_slots, error, proposed_by, approved_by, claimed_by, settled_by, evidence,
            downstream_id, reason)
        SELECT id, run_id, tenant_id, 'owed', now(), 'person', '', 'call them', false, '', now(), 0, '', '', '', '', '',
            '', '', '' FROM runs_effect ORDER BY id LIMIT 1""",
    ),
    (
        "what_is_held_by_law_is_whole",
        f"""{_CLOSE}; INSERT INTO runs_legal_hold (scope, tenant_id, label, value, placed_by, reason, placed_at,
            lifted_by, lift_reason) SELECT 'tenant', id, '', '', 'ada', 'court', now(), '', '' FROM runs_tenant""",
    ),
    (
        "finished_run_is_looked_at",
        "UPDATE runs_run SET finished_at = now() - interval '10 days', retain_at = NULL WHERE finished_at IS NOT NULL",
    ),
]

"""How each check of the invariants is broken by hand in the history that tests/upkeep/test_invariants.py makes."""

from __future__ import annotations

STORY = "(SELECT id FROM runs_run WHERE workflow = 'story')"
LAST_EVENT = f"(SELECT max(id) FROM runs_event WHERE to_state <> '' AND run_id = {STORY})"
PATIENT = "(SELECT id FROM runs_run WHERE workflow = 'patient')"
ROW_0 = f"run_id = {STORY} AND resource = 'row-0'"

BREAKS: list[tuple[str, str]] = [
    (
        "cap_has_as_many_slots_as_it_says",
        """
            INSERT INTO runs_quota_policy (resource, running_cap, version, updated_at, updated_by)
                VALUES ('scan', 2, 1, now(), 'a')""",
    ),
    (
        "blocks_are_what_a_tenants_budget_says_they_are",
        """
            INSERT INTO runs_tenant_spending (tenant_id, period, unit, currency, starts_at, ends_at, most, blocked)
                SELECT id, 'day', 'calls', '', now(), now() + interval '1 day', 10, 1 FROM runs_tenant LIMIT 1""",
    ),
    (
        "no_more_is_reserved_of_a_block_than_it_has",
        """
            INSERT INTO runs_tenant_spending (tenant_id, period, unit, currency, starts_at, ends_at, most)
                SELECT id, 'day', 'calls', '', now(), now() + interval '1 day', 10 FROM runs_tenant LIMIT 1;
            INSERT INTO runs_budget_block (spending_id, worker_id, amount)
                SELECT s.id, w.id, 1 FROM runs_tenant_spending s, runs_worker w LIMIT 1;
            INSERT INTO runs_reservation (block_id, run_id, fence, token, amount)
                SELECT k.id, r.id, 1, gen_random_uuid(), 2 FROM runs_budget_block k, runs_run r LIMIT 1""",
    ),
    (
        "no_more_run_than_the_cap_allows",
        f"""
            INSERT INTO runs_quota_policy (resource, running_cap, version, updated_at, updated_by)
                VALUES ('scan', 0, 1, now() - interval '1 hour', 'a');
            UPDATE runs_run SET state = 'running', state_since = now(), resource = 'scan' WHERE id = {PATIENT}""",
    ),
    (
        "queued_run_is_let_in_when_its_time_has_come",
        f"""
            UPDATE runs_run SET state = 'queued', deferred = true, due_at = now() - interval '1 hour'
                WHERE id = {PATIENT}""",
    ),
    (
        "queued_run_has_a_living_worker_that_knows_it",
        f"""
            UPDATE runs_worker SET plans = '[]';
            UPDATE runs_run SET state = 'queued', due_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_run SET state = 'running', worker_id = gen_random_uuid() WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_worker SET ended_at = NULL, renewed_at = now() - interval '1 hour';
            UPDATE runs_run SET state = 'running', worker_id = (SELECT min(id::text)::uuid
                FROM runs_worker) WHERE id = {PATIENT}""",
    ),
    (
        "running_run_has_a_living_worker",
        f"""
            UPDATE runs_worker SET ended_at = now() - interval '1 hour';
            UPDATE runs_run SET state = 'running', worker_id = (SELECT min(id::text)::uuid
                FROM runs_worker) WHERE id = {PATIENT}""",
    ),
    (
        "waiting_run_has_an_open_wait",
        f"""
            UPDATE runs_wait SET state = 'answered' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'time' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'poll', due_at = now() - interval '1 hour' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'children' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "open_wait_has_a_waker",
        f"""
            UPDATE runs_wait SET kind = 'turn', correlation = '' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "awaited_event_that_arrived_was_delivered",
        f"""
            UPDATE runs_wait SET name = 'news', since = now() - interval '2 days',
                opened_at = now() - interval '1 hour' WHERE run_id = {PATIENT};
            UPDATE runs_inbound_event SET received_at = now() - interval '1 hour'""",
    ),
    (
        "run_in_doubt_has_a_doubt_to_settle",
        """
            DELETE FROM runs_doubt""",
    ),
    (
        "run_in_review_says_why",
        """
            UPDATE runs_run SET error_message = '' WHERE state = 'in_review'""",
    ),
    (
        "gate_names_who_closed_it",
        f"""
            UPDATE runs_run SET paused = true WHERE id = {PATIENT}""",
    ),
    (
        "gate_names_who_closed_it",
        """
            INSERT INTO runs_pause_switch (scope, workflow, actor, reason, at) VALUES ('all', '', '', '', now())""",
    ),
    (
        "cancelled_run_ends",
        f"""
            UPDATE runs_run SET cancel_requested = true, state_since = now() - interval '1 hour'
                WHERE id = {PATIENT}""",
    ),
    (
        "overdue_run_is_ended",
        f"""
            UPDATE runs_run SET deadline_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "run_past_its_queue_wait_has_met_its_policy",
        f"""
            UPDATE runs_run SET state = 'queued', due_at = now() - interval '1 hour',
                queue_expires_at = now() - interval '1 hour' WHERE id = {PATIENT}""",
    ),
    (
        "expired_wait_is_closed",
        f"""
            UPDATE runs_wait SET expires_at = now() - interval '1 hour' WHERE run_id = {PATIENT}""",
    ),
    (
        "finished_run_waits_for_nothing",
        f"""
            UPDATE runs_run SET finished_at = now() - interval '1 hour' WHERE id = {STORY};
            UPDATE runs_wait SET state = 'open' WHERE run_id = {STORY}""",
    ),
    (
        "each_claim_has_a_fence_of_its_own",
        f"""
            UPDATE runs_event SET fence = 1 WHERE event = 'claim' AND run_id = {STORY}""",
    ),
    (
        "each_claim_has_a_fence_of_its_own",
        f"""
            UPDATE runs_run SET fence = 1 WHERE id = {STORY}""",
    ),
    (
        "fences_of_checkpoints_never_fall",
        f"""
            UPDATE runs_checkpoint SET fence = 99 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "checkpoint_was_written_by_the_worker_that_held_the_run",
        f"""
            UPDATE runs_checkpoint SET worker_id = gen_random_uuid() WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "committed_step_ran_once",
        f"""
            UPDATE runs_checkpoint SET step_id = 'page' WHERE step_id = 'slow' AND run_id = {STORY}""",
    ),
    (
        "checkpoint_numbers_are_dense",
        f"""
            DELETE FROM runs_checkpoint WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "checkpoint_numbers_are_dense",
        f"""
            UPDATE runs_checkpoint SET lineage = 2 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "head_is_the_newest_checkpoint",
        f"""
            UPDATE runs_run SET head_seq = head_seq + 1 WHERE id = {STORY}""",
    ),
    (
        "head_is_the_newest_checkpoint",
        f"""
            UPDATE runs_run SET step_id = 'other' WHERE id = {PATIENT}""",
    ),
    (
        "state_of_a_run_is_on_record",
        f"""
            UPDATE runs_checkpoint SET state = NULL, state_seq = 0 WHERE seq = 0 AND run_id = {PATIENT}""",
    ),
    (
        "state_of_a_run_is_on_record",
        f"""
            UPDATE runs_run SET state_seq = 0 WHERE id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = '2' WHERE cursor = '4' AND run_id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = to_jsonb(CASE cursor WHEN '2' THEN 'b' WHEN '4' THEN 'a' ELSE
                'c' END) WHERE cursor IS NOT NULL AND run_id = {STORY}""",
    ),
    (
        "cursor_never_goes_back",
        f"""
            UPDATE runs_checkpoint SET cursor = CASE cursor WHEN '2' THEN '[2, 1]'::jsonb ELSE '[1, 2]' END
                WHERE cursor IN ('2', '4') AND run_id = {STORY}""",
    ),
    (
        "run_stands_in_the_plan_it_made",
        """
            INSERT INTO runs_made_plan (run_id, number, lineage, seq, step_id, steps, plan, plan_hash, why, actor,
                fence)
            SELECT id, 1, 1, 0, step_id, '["elsewhere"]', '{}', '', '', '', 0 FROM runs_run WHERE finished_at IS NULL
            ORDER BY id LIMIT 1; UPDATE runs_run SET own_plan = true
            WHERE id IN (SELECT run_id FROM runs_made_plan)""",
    ),
    (
        "plan_of_a_checkpoint_is_kept",
        f"""
            UPDATE runs_checkpoint SET plan_id = 0 WHERE seq = 2 AND run_id = {STORY}""",
    ),
    (
        "no_result_before_its_intent",
        f"""
            UPDATE runs_effect SET intended_at = now() + interval '1 hour' WHERE {ROW_0}""",
    ),
    (
        "effect_has_the_result_its_state_says",
        f"""
            UPDATE runs_effect SET result = NULL WHERE {ROW_0}""",
    ),
    (
        "effect_has_the_result_its_state_says",
        f"""
            UPDATE runs_effect SET state = 'intended', completed_at = NULL WHERE {ROW_0}""",
    ),
    (
        "result_is_recorded_before_the_checkpoint_that_relies_on_it",
        f"""
            UPDATE runs_effect SET completed_at = now() + interval '1 hour' WHERE {ROW_0}""",
    ),
    (
        "slot_has_one_effect",
        f"""
            UPDATE runs_effect SET resource = 'row-0' WHERE resource = 'row-1' AND run_id = {STORY}""",
    ),
    (
        "slot_has_one_effect",
        f"""
            UPDATE runs_effect SET resource = 'row-0', scope = 'tenant' WHERE resource IN ('row-0',
                'row-1') AND run_id = {STORY}""",
    ),
    (
        "repeated_call_names_its_reason",
        f"""
            UPDATE runs_effect SET attempts = attempts + 1 WHERE {ROW_0}""",
    ),
    (
        "repeated_call_names_its_reason",
        """
            DELETE FROM runs_event WHERE event = 'effects_repeated'""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET state = 'intended', intended_at = now() - interval '1 hour', completed_at = NULL
                WHERE {ROW_0};
            UPDATE runs_run SET finished_at = now() - interval '1 minute' WHERE id = {STORY}""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET state = 'intended', intended_at = now() - interval '1 hour', completed_at = NULL
                WHERE {ROW_0};
            UPDATE runs_checkpoint SET at = now() - interval '1 minute' WHERE run_id = {STORY}""",
    ),
    (
        "effect_without_an_outcome_has_somebody_at_it",
        f"""
            UPDATE runs_effect SET run_id = {PATIENT}, safety = 'legacy', state = 'intended',
                intended_at = now() - interval '1 hour' WHERE {ROW_0};
            UPDATE runs_run SET state_since = now() - interval '1 minute' WHERE id = {PATIENT}""",
    ),
    (
        "effect_in_doubt_has_one_open_doubt",
        """
            DELETE FROM runs_doubt;
            UPDATE runs_effect SET intended_at = now() - interval '1 hour' WHERE state = 'in_doubt'""",
    ),
    (
        "effect_in_doubt_has_one_open_doubt",
        """
            UPDATE runs_effect SET state = 'succeeded' WHERE state = 'in_doubt'""",
    ),
    (
        "one_call_at_a_time_goes_to_a_legacy_system",
        f"""
            UPDATE runs_effect SET holds_system = true WHERE {ROW_0}""",
    ),
    (
        "queued_call_has_a_waker",
        f"""
            UPDATE runs_effect SET state = 'queued', safety = 'legacy', completed_at = NULL WHERE {ROW_0};
            UPDATE runs_run SET finished_at = now() - interval '1 minute' WHERE id = {STORY}""",
    ),
    (
        "queued_call_has_a_waker",
        f"""
            INSERT INTO runs_system (name, first_used_at) VALUES ('ledger', now());
            UPDATE runs_effect SET state = 'queued', safety = 'legacy', system = 'ledger', queue_order = 1,
                completed_at = NULL, run_id = {PATIENT} WHERE {ROW_0};
            UPDATE runs_wait SET kind = 'turn', name = 'ledger', correlation = '' WHERE run_id = {PATIENT};
            UPDATE runs_run SET state_since = now() - interval '1 minute' WHERE id = {PATIENT}""",
    ),
    (
        "effect_was_written_under_a_fence_its_run_had",
        f"""
            UPDATE runs_effect SET fence = 99 WHERE {ROW_0}""",
    ),
    (
        "moves_are_those_the_table_allows",
        f"""
            UPDATE runs_event SET event = 'wake' WHERE id = {LAST_EVENT}""",
    ),
    (
        "each_move_begins_where_the_last_one_ended",
        f"""
            DELETE FROM runs_event WHERE event = 'suspend' AND run_id = {STORY}""",
    ),
    (
        "each_move_begins_where_the_last_one_ended",
        f"""
            UPDATE runs_run SET state = 'failed' WHERE id = {STORY}""",
    ),
    (
        "finished_run_stays_finished",
        f"""
            INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence,
                actor, reason, data) VALUES ({STORY}, now(), 'claim', 'succeeded', 'running', '', 0, 9, '',
                '', '{{}}')""",
    ),
    (
        "finished_run_stays_finished",
        f"""
            UPDATE runs_run SET worker_id = gen_random_uuid() WHERE id = {STORY}""",
    ),
    (
        "succeeded_run_has_one_finish",
        f"""
            UPDATE runs_checkpoint SET kind = 'step' WHERE kind = 'finish' AND run_id = {STORY}""",
    ),
    (
        "each_resume_has_a_receipt",
        f"""
            DELETE FROM runs_receipt WHERE number = 2 AND run_id = {STORY}""",
    ),
    (
        "nothing_is_claimed_after_its_deadline",
        f"""
            UPDATE runs_event SET at = now() + interval '3 days' WHERE event = 'claim' AND run_id = {STORY}""",
    ),
    (
        "children_of_a_wait_are_complete",
        """
            UPDATE runs_run SET child_index = 7 WHERE parent_wait_id IS NOT NULL AND child_index = 2""",
    ),
    (
        "children_of_a_wait_are_complete",
        f"""
            UPDATE runs_run SET state = 'waiting', finished_at = NULL WHERE child_index = 2 AND parent_id = {STORY}""",
    ),
    (
        "finished_parent_leaves_no_child_behind",
        f"""
            UPDATE runs_run SET state = 'waiting', finished_at = NULL WHERE child_index = 2 AND parent_id = {STORY}""",
    ),
    (
        "changes_by_people_are_audited",
        """
            DELETE FROM runs_audit_entry WHERE verb = 'retry'""",
    ),
    (
        "changes_by_people_are_audited",
        """
            DELETE FROM runs_audit_entry WHERE verb = 'cancel'""",
    ),
    (
        "tenants_do_not_mix",
        f"""
            INSERT INTO runs_tenant (slug, name, created_at) VALUES ('x', 'X', now());
            UPDATE runs_effect SET tenant_id = (SELECT id FROM runs_tenant WHERE slug = 'x') WHERE {ROW_0}""",
    ),
    (
        "tenants_do_not_mix",
        """
            INSERT INTO runs_tenant (slug, name, created_at) VALUES ('x', 'X', now());
            UPDATE runs_inbound_event SET tenant_id = (SELECT id FROM runs_tenant WHERE slug = 'x')""",
    ),
]
"""Check, and what a hand with every guard switched off does to the record."""

"""The parts a fenced write is made of: what each inserts or updates, hanging on the row of its run. See `fenced`."""

from __future__ import annotations

from runs import posting
from runs.doubting import RETURNING, left
from runs.states import TERMINAL

_TERMINAL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))

RECORDSETS: dict[str, str] = {
    "outcomes": (
        "id bigint, state text, result text, downstream_id text, error_class text, error_message text, reused int,"
        " response jsonb"
    ),
    "doubts": "id bigint, cause text, why text, response jsonb",
    "records": (
        "slot text, key text, request_hash text, request_summary jsonb, step_id text, tool text, resource text,"
        " author_key text, safety text, scope text, state text, result text, downstream_id text, error_class text,"
        " error_message text, attempts int"
    ),
    "intents": (
        "n int, slot text, key text, request_hash text, request_summary jsonb, step_id text, tool text, resource text,"
        " author_key text, safety text, scope text, send_seconds float8, quiet_seconds float8, window_seconds float8,"
        " remind_seconds float8, escalate_seconds float8"
    ),
    "queued": (
        "n int, slot text, key text, request_hash text, request_summary jsonb, step_id text, tool text, resource text,"
        " author_key text, scope text, system text, remind_seconds float8, escalate_seconds float8"
    ),
    "messages": posting.COLUMNS,
    "artifacts": (
        "name text, data_class text, readable_by text, content_type text, content_hash text, size_bytes bigint,"
        " path text, sealed_with text"
    ),
    "decisions": "name text, author_key text, input_hash text, result text",
    "prompts": "name text, author_key text, content_hash text, size_bytes int, sealed text, sealed_with text",
    "waits": (
        "kind text, name text, author_key text, correlation text, since timestamptz, due_seconds float8,"
        " expires_seconds float8, on_timeout text, turns int, question text, facts text, facts_hash text"
    ),
    "approvals": (
        "name text, choices jsonb, fields jsonb, roles jsonb, four_eyes bool, remind_seconds float8,"
        " escalate_seconds float8, escalate_to text"
    ),
    "events": "n int, event text, reason text, data jsonb, moves bool",
    "logs": "n int, at timestamptz, level text, message text, fields jsonb",
}

PARTS: dict[str, str] = {
    "checkpoint": """
        INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, cursor, state, state_seq,
            output, output_hash, effects_through, fence, worker_id, entry, attempt, started_at, at)
        SELECT run.id, run.head_seq, run.lineage, %(cp_kind)s, %(cp_step)s, %(cp_next)s, run.plan_id,
        %(cp_cursor)s::jsonb,
            %(cp_state)s, run.state_seq, %(cp_output)s, %(cp_output_hash)s, {effects_through}, run.fence, %(worker)s,
            %(cp_entry)s, %(cp_attempt)s, now() - %(cp_elapsed)s * interval '1 second', now()
        FROM run""",
    "made_plan": """
        INSERT INTO runs_made_plan (run_id, number, lineage, seq, step_id, steps, plan, plan_hash, why, actor, fence,
            at)
        SELECT run.id, (SELECT coalesce(max(p.number), 0) + 1 FROM runs_made_plan p WHERE p.run_id = run.id),
            run.lineage, run.head_seq, %(cp_step)s, %(mp_steps)s::jsonb, %(mp_plan)s::jsonb, %(mp_hash)s, %(mp_why)s,
            '', run.fence, now()
        FROM run""",
    # An outcome is written once; a record that is settled already is left as it is.
    "outcomes": """
        UPDATE runs_effect e SET state = coalesce(x.state, e.state), result = coalesce(x.result, e.result),
            downstream_id = coalesce(x.downstream_id, e.downstream_id), error_class = coalesce(x.error_class,
            e.error_class),
            error_message = coalesce(x.error_message, e.error_message), reused = e.reused + coalesce(x.reused, 0),
            completed_at = CASE WHEN x.state IS NULL THEN e.completed_at ELSE now() END,
            response_summary = coalesce(x.response, e.response_summary),
            holds_system = e.holds_system AND x.state IS NULL
        FROM x_outcomes x, run
        WHERE e.id = x.id AND (x.state IS NULL OR e.state = 'intended')""",
    "doubts": f"""
        UPDATE runs_effect e SET state = 'in_doubt', error_class = x.cause, error_message = x.why,
            response_summary = coalesce(x.response, e.response_summary)
        FROM x_doubts x, run WHERE e.id = x.id AND e.state = 'intended'
        RETURNING {RETURNING}""",
    # Whatever the holder does not know about: what an earlier entry of the step intended and this one did not ask for.
    "leaves": left(
        of="run",
        only="e.run_id = run.id AND e.id <> ALL(%(leaves_known)s) AND (%(leaves_all)s OR run.state IN ("
        + _TERMINAL
        + ") OR (e.state = 'intended' AND e.safety = 'legacy'))",
        because="%(leaves)s::text",
        cause="CASE WHEN %(leaves_all)s THEN 'left_open' WHEN run.state IN ("
        + _TERMINAL
        + ") THEN 'run_ended' ELSE 'interrupted' END",
    ),
    "records": """
        INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
            author_key, safety, scope, state, attempts, reused, fence, intended_at, completed_at, result, downstream_id,
            error_class, error_message)
        SELECT run.id, run.tenant_id, decode(x.slot, 'hex'), x.key, x.request_hash, x.request_summary, x.step_id,
        x.tool,
            x.resource, x.author_key, x.safety, x.scope, x.state, x.attempts, 0, run.fence, now(), now(), x.result,
            x.downstream_id, x.error_class, x.error_message
        FROM x_records x, run
        ON CONFLICT (slot) DO NOTHING""",
    # An intent that was withdrawn was never sent: taken up again, it is still the first sending. Unless somebody found
    # out that it was sent and did not happen.
    "intents": """
        INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
            author_key, safety, scope, state, attempts, reused, fence, intended_at, send_before, quiet_after,
            window_ends_at, downstream_id, error_class, error_message, remind_seconds, escalate_seconds)
        SELECT run.id, run.tenant_id, decode(x.slot, 'hex'), x.key, x.request_hash, x.request_summary, x.step_id,
        x.tool,
            x.resource, x.author_key, x.safety, x.scope, 'intended', 1, 0, run.fence, now(),
            now() + x.send_seconds * interval '1 second', now() + x.quiet_seconds * interval '1 second',
            now() + x.window_seconds * interval '1 second', '', '', '', x.remind_seconds, x.escalate_seconds
        FROM x_intents x, run WHERE {may_send} ORDER BY x.n
        ON CONFLICT (slot) DO UPDATE SET state = 'intended', completed_at = NULL, fence = excluded.fence,
            intended_at = excluded.intended_at,
            run_id = excluded.run_id, step_id = excluded.step_id,
            attempts = runs_effect.attempts + CASE WHEN runs_effect.error_class = 'DidNotHappen' THEN 1 ELSE 0 END,
            send_before = excluded.send_before, quiet_after = excluded.quiet_after,
            window_ends_at = excluded.window_ends_at, error_class = '', error_message = ''
        WHERE runs_effect.state = 'withdrawn' AND runs_effect.request_hash = excluded.request_hash
        RETURNING id, slot""",
    # The places of a batch are handed out in the order of its items.
    "queued": """
        INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
            author_key, safety, scope, state, system, queue_order, attempts, reused, fence, intended_at, downstream_id,
            error_class, error_message, remind_seconds, escalate_seconds)
        SELECT run.id, run.tenant_id, decode(x.slot, 'hex'), x.key, x.request_hash, x.request_summary, x.step_id,
            x.tool, x.resource, x.author_key, 'legacy', x.scope, 'queued', x.system, nextval('runs_queue_order'), 1, 0,
            run.fence, now(), '', '', '', x.remind_seconds, x.escalate_seconds
        FROM x_queued x, run WHERE {may_send} ORDER BY x.n
        ON CONFLICT (slot) DO UPDATE SET state = 'queued', system = excluded.system,
            queue_order = excluded.queue_order, completed_at = NULL, fence = excluded.fence,
            intended_at = excluded.intended_at, run_id = excluded.run_id, step_id = excluded.step_id,
            attempts = runs_effect.attempts + CASE WHEN runs_effect.error_class = 'DidNotHappen' THEN 1 ELSE 0 END,
            send_before = NULL, quiet_after = NULL, error_class = '', error_message = ''
        WHERE runs_effect.state = 'withdrawn' AND runs_effect.request_hash = excluded.request_hash
        RETURNING id, slot""",
    # A doubt about a key that is still remembered is answered by sending it once more.
    "repeats": """
        UPDATE runs_effect e SET state = 'intended', fence = run.fence, error_class = '', error_message = '',
            attempts = e.attempts + CASE WHEN e.id = ANY(%(unsent)s) THEN 0 ELSE 1 END,
            send_before = now() + %(repeat_seconds)s * interval '1 second',
            quiet_after = now() + 2 * %(repeat_seconds)s * interval '1 second'
        FROM run WHERE e.id = ANY(%(repeats)s) AND e.run_id = run.id AND {may_send} AND (e.state = 'intended' OR (
            e.state = 'in_doubt' AND e.safety = 'keyed' AND coalesce(e.window_ends_at > now(), true)))
        RETURNING e.id""",
    "decisions": """
        INSERT INTO runs_decision (run_id, step_id, name, author_key, input_hash, result, fence, at)
        SELECT run.id, %(step)s, x.name, x.author_key, x.input_hash, x.result, run.fence, now() FROM x_decisions x, run
        ON CONFLICT ON CONSTRAINT decision_inputs_unique DO NOTHING""",
    "prompts": """
        INSERT INTO runs_prompt (run_id, step_id, name, author_key, content_hash, size_bytes, sealed, sealed_with,
            fence, at)
        SELECT run.id, %(step)s, x.name, x.author_key, x.content_hash, x.size_bytes, x.sealed, x.sealed_with,
            run.fence, now()
        FROM x_prompts x, run
        ON CONFLICT ON CONSTRAINT prompt_content_unique DO NOTHING""",
    "artifacts": """
        INSERT INTO runs_artifact (run_id, step_id, name, data_class, readable_by, content_type, content_hash,
            size_bytes, path, sealed_with, fence, at)
        SELECT run.id, %(step)s, x.name, x.data_class, x.readable_by, x.content_type, x.content_hash, x.size_bytes,
            x.path, x.sealed_with, run.fence, now()
        FROM x_artifacts x, run
        ON CONFLICT ON CONSTRAINT artifact_content_unique DO NOTHING RETURNING path""",
    # A file whose artifact was there already stays loose, and is removed.
    "named": "DELETE FROM runs_loose_file f USING artifacts a WHERE f.path = a.path",
    "waits": """
        INSERT INTO runs_wait (run_id, tenant_id, lineage, step_id, kind, name, author_key, correlation, state,
        opened_at,
            since, due_at, expires_at, on_timeout, turns, question, facts, facts_hash, answered_by)
        SELECT run.id, run.tenant_id, run.lineage, %(step)s, x.kind, x.name, x.author_key, x.correlation, 'open', now(),
            coalesce(x.since, now()), now() + x.due_seconds * interval '1 second',
            now() + x.expires_seconds * interval '1 second', x.on_timeout, x.turns, x.question, x.facts,
            x.facts_hash, ''
        FROM x_waits x, run
        ON CONFLICT ON CONSTRAINT wait_name_unique DO UPDATE SET due_at = excluded.due_at, turns = excluded.turns,
            state = CASE WHEN runs_wait.kind = 'approval' THEN runs_wait.state ELSE 'open' END,
            question = CASE WHEN runs_wait.state = 'open' THEN excluded.question ELSE runs_wait.question END,
            facts = CASE WHEN runs_wait.state = 'open' THEN excluded.facts ELSE runs_wait.facts END,
            facts_hash = CASE WHEN runs_wait.state = 'open' THEN excluded.facts_hash ELSE runs_wait.facts_hash END
        RETURNING id""",
    # Asked once more with other facts, it is the same question: its clocks go on.
    "approvals": """
        INSERT INTO runs_approval (wait_id, run_id, tenant_id, round, choices, fields, roles, four_eyes, remind_seconds,
            escalate_seconds, escalate_to, remind_at, escalate_at)
        SELECT w.id, run.id, run.tenant_id,
            1 + (SELECT count(*) FROM runs_approval o JOIN runs_wait p ON p.id = o.wait_id
                 WHERE o.run_id = run.id AND p.name = x.name),
            x.choices, x.fields, x.roles, x.four_eyes, x.remind_seconds, x.escalate_seconds, x.escalate_to,
            now() + x.remind_seconds * interval '1 second', now() + x.escalate_seconds * interval '1 second'
        FROM x_approvals x, waits w, run
        ON CONFLICT (wait_id) DO UPDATE SET choices = excluded.choices, fields = excluded.fields,
            roles = excluded.roles, four_eyes = excluded.four_eyes
        WHERE runs_approval.decided_at IS NULL""",
    "events": """
        INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, worker_id, actor,
        reason, data)
        SELECT run.id, now(), CASE WHEN x.moves AND run.state = 'cancelled' THEN 'stop' ELSE x.event END,
            CASE WHEN x.moves THEN 'running' ELSE '' END, CASE WHEN x.moves THEN run.state ELSE '' END,
            %(step)s, %(attempt)s, run.fence, %(worker)s, '', x.reason, x.data
        FROM x_events x, run ORDER BY x.n""",
    "logs": """
        INSERT INTO runs_log_line (run_id, at, step_id, attempt, entry, level, message, fields)
        SELECT run.id, x.at, %(step)s, %(attempt)s, %(entry)s, x.level, x.message, x.fields FROM x_logs x, run ORDER
        BY x.n""",
    "receipt": """
        UPDATE runs_receipt c SET reused_effects = c.reused_effects + %(reused)s,
            repeated_effects = c.repeated_effects + %(repeated)s
        FROM run WHERE c.run_id = run.id AND c.number = run.resumes""",
}


ANSWERED_BY_REPEAT = """
        answered AS (UPDATE runs_doubt d SET settled_at = now(), settled_as = 'sent_again', settled_by = 'engine'
            FROM repeats p WHERE d.effect_id = p.id AND d.settled_at IS NULL)"""

SYSTEMS = """
        systems AS (INSERT INTO runs_system (name, first_used_at)
            SELECT DISTINCT x.system, now() FROM x_queued x, run ON CONFLICT (name) DO NOTHING)"""
"""A system is known from the first call that is queued for it."""

"""Limbo: open runs that nothing will ever wake, and clocks that should have fired. Promises 7, 10 and 12."""

from __future__ import annotations

from durableops.upkeep.invariants.check import OPEN_RUNS, SETTLED, Check
from runs.fenced import SWITCHED_OFF
from runs.states import PARKED

_PARKED = ", ".join(f"'{state}'" for state in sorted(PARKED))

CHECKS = (
    Check(
        name="queued_run_has_a_living_worker_that_knows_it",
        promise=7,
        looks_at=f"{OPEN_RUNS} that is queued",
        broken=f"""
            SELECT r.id, format('%%s v%%s is due since %%s; no living worker has it%%s',
                r.workflow, p.version, r.due_at, CASE WHEN r.pinned THEN ', and it is pinned to it' ELSE '' END)
            FROM runs_run r JOIN runs_workflow_plan p ON p.id = r.plan_id
            WHERE r.state = 'queued' AND NOT r.paused AND NOT {SWITCHED_OFF.format(run="r")}
              AND r.due_at < {SETTLED} - %(patience)s * interval '1 second'
              AND NOT EXISTS (
                SELECT 1 FROM runs_worker w WHERE w.ended_at IS NULL AND NOT w.draining
                  AND (w.plans IS NULL OR w.plans @> to_jsonb(r.plan_id)))""",
        explained=f"""
            SELECT r.id, CASE WHEN r.paused THEN format('paused by %%s', r.paused_by) ELSE 'a switch is set' END
            FROM runs_run r WHERE r.state = 'queued' AND (r.paused OR {SWITCHED_OFF.format(run="r")})""",
    ),
    Check(
        name="running_run_has_a_living_worker",
        promise=7,
        looks_at=f"{OPEN_RUNS} that is running",
        broken=f"""
            SELECT r.id, CASE WHEN w.id IS NULL THEN 'its worker is not on record'
                WHEN w.ended_at IS NOT NULL THEN format('its worker ended at %%s: %%s', w.ended_at, w.ended_why)
                ELSE format('its worker was last heard of at %%s and nobody declared it dead', w.renewed_at) END
            FROM runs_run r LEFT JOIN runs_worker w ON w.id = r.worker_id
            WHERE r.state = 'running' AND (w.id IS NULL OR w.ended_at < {SETTLED}
               OR (w.ended_at IS NULL AND w.renewed_at < {SETTLED} - w.lease_seconds * interval '1 second'))""",
    ),
    Check(
        name="waiting_run_has_an_open_wait",
        promise=7,
        looks_at=f"{OPEN_RUNS} that is waiting",
        broken=f"""
            SELECT r.id, format('it waits for nothing since %%s', r.state_since) FROM runs_run r
            WHERE r.state = 'waiting' AND r.state_since < {SETTLED}
              AND NOT EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.state = 'open')""",
    ),
    Check(
        name="open_wait_has_a_waker",
        promise=7,
        looks_at="every open wait of a waiting run",
        broken=f"""
            SELECT w.id, format('%%s %%L of run %%s: %%s', w.kind, w.name, w.run_id, CASE
                WHEN w.kind IN ('time', 'poll') AND w.due_at IS NULL THEN 'it has no time to go on at'
                WHEN w.kind IN ('time', 'poll') THEN format('it was due at %%s', w.due_at)
                WHEN w.kind = 'turn' THEN 'it has no place in that queue'
                ELSE 'all its child runs have finished' END)
            FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
            WHERE w.state = 'open' AND r.state = 'waiting' AND r.state_since < {SETTLED} AND (
                (w.kind IN ('time', 'poll') AND (w.due_at IS NULL OR w.due_at < {SETTLED}))
                OR (w.kind = 'children' AND NOT EXISTS (
                    SELECT 1 FROM runs_run c WHERE c.parent_wait_id = w.id
                    AND (c.finished_at IS NULL OR c.finished_at > {SETTLED})))
                OR (w.kind = 'turn' AND w.correlation = '' AND NOT EXISTS (
                    SELECT 1 FROM runs_effect e WHERE e.run_id = w.run_id AND e.system = w.name
                    AND e.state = 'queued' AND e.safety = 'legacy')))""",
        explained="""
            SELECT w.id, format('%%s %%L of run %%s has no timeout: it waits until somebody answers',
                w.kind, w.name, w.run_id)
            FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
            WHERE w.state = 'open' AND w.kind IN ('event', 'approval', 'file') AND w.expires_at IS NULL
              AND r.state = 'waiting' AND r.deadline_at IS NULL""",
    ),
    Check(
        name="awaited_event_that_arrived_was_delivered",
        promise=7,
        looks_at="every open wait for an event",
        broken=f"""
            SELECT w.id, format('run %%s still waits for %%L, which arrived at %%s', w.run_id, w.name, e.received_at)
            FROM runs_wait w JOIN runs_inbound_event e ON e.tenant_id = w.tenant_id AND e.name = w.name
                AND e.correlation = w.correlation AND e.received_at >= w.since
            WHERE w.state = 'open' AND w.kind = 'event' AND e.received_at < {SETTLED} AND w.opened_at < {SETTLED}
              AND NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = w.run_id AND o.inbound_event_id = e.id)""",
    ),
    Check(
        name="run_in_doubt_has_a_doubt_to_settle",
        promise=7,
        looks_at=f"{OPEN_RUNS} that is in doubt",
        broken="""
            SELECT r.id, 'no doubt about it is open, so nobody is asked' FROM runs_run r
            WHERE r.state = 'in_doubt' AND NOT EXISTS (
                SELECT 1 FROM runs_doubt d WHERE d.run_id = r.id AND d.settled_at IS NULL)""",
    ),
    Check(
        name="run_in_review_says_why",
        promise=13,
        looks_at=f"{OPEN_RUNS} that is in review",
        broken="""
            SELECT r.id, 'nothing says what a person is to decide' FROM runs_run r
            WHERE r.state = 'in_review' AND r.error_message = ''""",
    ),
    Check(
        name="gate_names_who_closed_it",
        promise=7,
        looks_at="every paused run and every switch",
        broken="""
            SELECT r.id::text, 'it is paused by nobody' FROM runs_run r
            WHERE r.finished_at IS NULL AND r.paused AND r.paused_by = ''
            UNION ALL SELECT format('switch %%s', s.id), 'it was set by nobody'
                FROM runs_pause_switch s WHERE s.actor = ''""",
    ),
    Check(
        name="cancelled_run_ends",
        promise=7,
        looks_at=f"{OPEN_RUNS} that was asked to stop and is not running",
        broken=f"""
            SELECT r.id, format('%%s asked it to stop; it is %%s since %%s and nothing below it is open',
                r.cancel_requested_by, r.state, r.state_since)
            FROM runs_run r WHERE r.cancel_requested AND r.state IN ('waiting', 'in_doubt', 'in_review')
              AND r.state_since < {SETTLED} AND NOT EXISTS (
                SELECT 1 FROM runs_run c WHERE c.parent_id = r.id
                    AND (c.finished_at IS NULL OR c.finished_at > {SETTLED}))""",
    ),
    Check(
        name="overdue_run_is_ended",
        promise=10,
        looks_at=f"{OPEN_RUNS} with a deadline",
        broken=f"""
            SELECT r.id, format('its deadline was %%s and it is %%s', r.deadline_at, r.state) FROM runs_run r
            WHERE r.state IN ({_PARKED}) AND r.deadline_at < {SETTLED} AND NOT (r.deadline_policy = 'asked' AND EXISTS (
                SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.state = 'open' AND w.clock = 'run_deadline'))""",
        explained="""
            SELECT r.id, format('its deadline was %%s; its holder ends it at its next commit', r.deadline_at)
            FROM runs_run r WHERE r.state = 'running' AND r.deadline_at < now()""",
    ),
    Check(
        name="run_past_its_queue_wait_has_met_its_policy",
        promise=7,
        looks_at=f"{OPEN_RUNS} that is queued with a queue wait",
        broken=f"""
            SELECT r.id, format('it has stood in the queue too long since %%s', r.queue_expires_at) FROM runs_run r
            WHERE r.state = 'queued' AND r.queue_expires_at < {SETTLED}""",
    ),
    Check(
        name="expired_wait_is_closed",
        promise=10,
        looks_at="every open wait with a timeout",
        broken=f"""
            SELECT w.id, format('%%s %%L of run %%s expired at %%s', w.kind, w.name, w.run_id, w.expires_at)
            FROM runs_wait w WHERE w.state = 'open' AND w.expires_at < {SETTLED}""",
    ),
    Check(
        name="finished_run_waits_for_nothing",
        promise=6,
        looks_at="every open wait",
        broken=f"""
            SELECT w.id, format('run %%s finished at %%s', r.id, r.finished_at)
            FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
            WHERE w.state = 'open' AND r.finished_at < {SETTLED}""",
    ),
)

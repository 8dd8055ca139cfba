"""Histories: legal moves, final endings, receipts, families, what people did. Promises 1, 6, 7, 12, 15 and 16."""

from __future__ import annotations

from durableops.upkeep.invariants.check import HISTORIES, NEWEST, Check
from runs.states import TERMINAL, TRANSITIONS

_EVENTS = f"the events of {HISTORIES}"
_OF = f"v.run_id IN {NEWEST}"
_TERMINAL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
_LEGAL = ", ".join(
    ["('start', '', 'queued')"]
    + [
        f"('{name}', '{source}', '{edge.target}')"
        for name, edge in TRANSITIONS.items()
        for source in sorted(edge.sources)
    ]
)
# What stands on the timeline, and the verb under which the audit keeps it.
_AUDITED = (
    "('pause', 'pause'), ('resume', 'resume'), ('approve', 'approve'), ('refuse', 'refuse'), ('recheck', 'recheck'),"
    " ('reopen', 'retry'), ('branch', 'retry_from'), ('forked', 'fork'), ('extend_deadline', 'extend_deadline'),"
    " ('release_system', 'release_system'), ('settle', 'settle'), ('cancel', 'cancel'), ('cancel_requested', 'cancel')"
)

# What lets a parked run go on is told as a recheck, and audited as what a person did to it.
_REVIEWED = "('recheck', 'migrate', 'edit', 'move', 'pin')"

CHECKS = (
    Check(
        name="moves_are_those_the_table_allows",
        promise=6,
        looks_at=_EVENTS,
        broken=f"""
            SELECT v.run_id, format('event %%s: %%L moved it from %%L to %%L', v.id, v.event, v.from_state, v.to_state)
            FROM runs_event v WHERE v.to_state <> '' AND {_OF}
              AND (v.event, v.from_state, v.to_state) NOT IN (VALUES {_LEGAL})""",
    ),
    Check(
        name="each_move_begins_where_the_last_one_ended",
        promise=1,
        looks_at=_EVENTS,
        broken=f"""
            SELECT x.run_id, format('event %%s: %%L found it %%L, the move before had left it %%L', x.id, x.event,
                x.from_state, x.before)
            FROM (SELECT v.run_id, v.id, v.event, v.from_state,
                    coalesce(lag(v.to_state) OVER (PARTITION BY v.run_id ORDER BY v.id), '') AS before
                  FROM runs_event v WHERE v.to_state <> '' AND {_OF}) x
            WHERE x.from_state <> x.before
            UNION ALL
            SELECT r.id, format('it is %%s, its last event left it %%s', r.state,
                coalesce(l.to_state, 'without a state'))
            FROM runs_run r LEFT JOIN LATERAL (
                SELECT v.to_state FROM runs_event v WHERE v.run_id = r.id
                    AND v.to_state <> '' ORDER BY v.id DESC LIMIT 1
            ) l ON true
            WHERE r.id IN {NEWEST} AND l.to_state IS DISTINCT FROM r.state""",
    ),
    Check(
        name="finished_run_stays_finished",
        promise=6,
        looks_at=_EVENTS,
        broken=f"""
            SELECT x.run_id, format('event %%s: %%L moved it after it was %%s', x.id, x.event, x.before)
            FROM (SELECT v.run_id, v.id, v.event, lag(v.to_state) OVER (PARTITION BY v.run_id ORDER BY v.id) AS before
                  FROM runs_event v WHERE v.to_state <> '' AND {_OF}) x
            WHERE x.before IN ({_TERMINAL}) AND x.event NOT IN ('reopen', 'branch')
            UNION ALL
            SELECT r.id, format('it is %%s and still names worker %%s', r.state, r.worker_id)
            FROM runs_run r WHERE r.id IN {NEWEST} AND r.finished_at IS NOT NULL AND r.worker_id IS NOT NULL""",
    ),
    Check(
        name="succeeded_run_has_one_finish",
        promise=2,
        looks_at=f"{HISTORIES} that succeeded",
        broken=f"""
            SELECT r.id, format('it has %%s finishing checkpoints; its newest is a %%L', f.finishes, f.newest)
            FROM runs_run r JOIN LATERAL (
                SELECT count(*) FILTER (WHERE c.kind = 'finish') AS finishes,
                    max(c.kind) FILTER (WHERE c.seq = r.head_seq) AS newest
                FROM runs_checkpoint c WHERE c.run_id = r.id) f ON true
            WHERE r.state = 'succeeded' AND r.id IN {NEWEST} AND (f.finishes <> 1 OR f.newest IS DISTINCT FROM
                'finish')""",
    ),
    Check(
        name="each_resume_has_a_receipt",
        promise=7,
        looks_at=f"the receipts of {HISTORIES}",
        broken=f"""
            SELECT r.id, format('%%s resumes, %%s receipts up to number %%s', r.resumes, c.receipts, c.last)
            FROM runs_run r JOIN LATERAL (
                SELECT count(*) AS receipts, coalesce(max(x.number), 0) AS last
                    FROM runs_receipt x WHERE x.run_id = r.id
            ) c ON true
            WHERE r.id IN {NEWEST} AND (c.receipts <> r.resumes OR c.last <> r.resumes)""",
    ),
    Check(
        name="nothing_is_claimed_after_its_deadline",
        promise=12,
        looks_at=f"the claims of {HISTORIES}",
        broken=f"""
            SELECT r.id, format('claimed at %%s, after its deadline %%s', v.at, r.deadline_at)
            FROM runs_event v JOIN runs_run r ON r.id = v.run_id
            WHERE v.event = 'claim' AND v.at > r.deadline_at AND {_OF}""",
    ),
    Check(
        name="children_of_a_wait_are_complete",
        promise=7,
        looks_at=f"the fan-outs of {HISTORIES}",
        broken=f"""
            SELECT w.id, format('run %%s made %%s of %%s child runs, numbered to %%s', w.run_id,
                c.made, w.turns, c.last)
            FROM runs_wait w JOIN LATERAL (
                SELECT count(*) AS made, coalesce(max(k.child_index), -1) AS last
                    FROM runs_run k WHERE k.parent_wait_id = w.id
            ) c ON true
            JOIN runs_run p ON p.id = w.run_id
            WHERE w.kind = 'children' AND w.run_id IN {NEWEST} AND (c.made <> w.turns OR c.last <> w.turns - 1)
              -- Once a parent has ended, its children's rows may go before its own.
              AND (p.finished_at IS NULL OR c.made >= w.turns)
            UNION ALL
            SELECT w.id, format('run %%s went on while child %%s was open', w.run_id, k.id)
            FROM runs_wait w JOIN runs_run k ON k.parent_wait_id = w.id
            WHERE w.kind = 'children' AND w.state = 'answered' AND k.finished_at IS NULL AND w.run_id IN {NEWEST}""",
    ),
    Check(
        name="finished_parent_leaves_no_child_behind",
        promise=7,
        looks_at="every open child run",
        broken="""
            SELECT k.id, format('its parent %%s is %%s and nobody asked it to stop', r.id, r.state)
            FROM runs_run k JOIN runs_run r ON r.id = k.parent_id
            WHERE k.finished_at IS NULL AND NOT k.cancel_requested AND r.finished_at IS NOT NULL""",
    ),
    Check(
        name="changes_by_people_are_audited",
        promise=15,
        looks_at=f"what people did to {HISTORIES}",
        broken=f"""
            SELECT v.run_id, format('%%s by %%s: %%s on the timeline, %%s in the audit', m.verb,
                v.actor, count(*), min(a.entries))
            FROM runs_event v JOIN (VALUES {_AUDITED}) m(event, verb) ON m.event = v.event
            JOIN runs_run r ON r.id = v.run_id
            JOIN LATERAL (
                SELECT count(*) AS entries FROM runs_audit_entry a
                WHERE a.target_kind = 'run' AND a.target_id = v.run_id::text AND a.actor = v.actor
                  AND (a.verb = m.verb OR (m.verb = 'recheck' AND a.verb IN {_REVIEWED}))
            ) a ON true
            WHERE v.actor NOT IN ('', 'engine', 'upkeep', 'supervisor', 'probe') AND {_OF}
              -- A child that ends with its parent is part of what was audited there.
              AND NOT (m.verb = 'cancel' AND r.parent_id IS NOT NULL)
            GROUP BY v.run_id, m.verb, v.actor
            HAVING min(a.entries) < count(*) FILTER (WHERE v.event NOT IN ('cancel', 'cancel_requested'))
                OR min(a.entries) = 0""",
    ),
    Check(
        name="tenants_do_not_mix",
        promise=16,
        looks_at=f"what belongs to {HISTORIES}",
        broken=f"""
            SELECT r.id, 'its parent belongs to another tenant' FROM runs_run r JOIN runs_run p ON p.id = r.parent_id
            WHERE p.tenant_id <> r.tenant_id AND r.id IN {NEWEST}
            UNION ALL SELECT r.id, format('its effect %%s belongs to another tenant', e.id)
            FROM runs_effect e JOIN runs_run r ON r.id = e.run_id WHERE e.tenant_id <> r.tenant_id AND r.id IN {NEWEST}
            UNION ALL SELECT r.id, format('its wait %%s belongs to another tenant', w.id)
            FROM runs_wait w JOIN runs_run r ON r.id = w.run_id WHERE w.tenant_id <> r.tenant_id AND r.id IN {NEWEST}
            UNION ALL SELECT w.run_id, format('its wait %%s was answered by another tenant''s event', w.id)
            FROM runs_wait w JOIN runs_inbound_event e ON e.id = w.inbound_event_id
            WHERE e.tenant_id <> w.tenant_id AND w.run_id IN {NEWEST}""",
    ),
)

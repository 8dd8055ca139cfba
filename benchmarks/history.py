"""A history of runs that ended, written by the server itself: millions of rows in a minute."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

TABLES = ("runs_run", "runs_checkpoint", "runs_effect", "runs_event")
BATCH = 20_000
"""Runs in one statement of each table."""

_RUN = "('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
_AT = "now() - %(days)s * interval '1 day'"
_RUNS = f"""
INSERT INTO runs_run (id, tenant_id, workflow, plan_id, state, state_since, priority, input_hash, created_at,
    created_by, labels, fence, paused, paused_by, cancel_requested, cancel_requested_by, cancel_reason, lineage,
    head_seq, state_seq, step_id, step_entries, step_attempts, recoveries, max_recoveries, wake_cause, wake_detail,
    resumes, effects_avoided, progress_note, error_class, error_message, error_fingerprint, started_at, finished_at)
SELECT {_RUN}, p.tenant_id, 'bench-old', p.plan_id, 'succeeded', {_AT}, 0, repeat('i', 64), {_AT}, 'bench', '{{}}', 1,
    false, '', false, '', '', 1, %(checkpoints)s - 1, 0, 'all', 1, 0, 0, 5, '', '', 0, 0, '', '', '', '', {_AT}, {_AT}
FROM generate_series(%(first)s::bigint, %(last)s) n,
    (SELECT tenant_id, plan_id FROM runs_run WHERE workflow <> 'bench-old' ORDER BY id DESC LIMIT 1) p"""
_CHECKPOINTS = f"""
INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, state, state_seq, output,
    output_hash, effects_through, fence, entry, attempt, at)
SELECT {_RUN}, s, 1, CASE WHEN s = 0 THEN 'start' WHEN s = %(checkpoints)s - 1 THEN 'finish' ELSE 'step' END, 'all',
    'all', p.plan_id, CASE WHEN s = 0 THEN '{{"key":"' || repeat('k', 200) || '"}}' END, 0, repeat('o', 100),
    repeat('h', 64), 0, 1, 1, 1, {_AT}
FROM generate_series(%(first)s::bigint, %(last)s) n, generate_series(0, %(checkpoints)s - 1) s,
    (SELECT plan_id FROM runs_run WHERE workflow <> 'bench-old' ORDER BY id DESC LIMIT 1) p"""
_EFFECTS = f"""
INSERT INTO runs_effect (run_id, tenant_id, slot, key, request_hash, request_summary, step_id, tool, resource,
    author_key, safety, scope, state, attempts, reused, fence, intended_at, completed_at, result, downstream_id,
    error_class, error_message)
SELECT {_RUN}, p.tenant_id, sha256(convert_to(n || ' ' || s, 'UTF8')), md5(n || ' ' || s), repeat('r', 64),
    '{{"for": "somebody"}}', 'all', 'bench', 'thing-' || s, '', 'keyed', 'run', 'succeeded', 1, 0, 1, {_AT}, {_AT},
    '"' || repeat('a', 100) || '"', 'D-' || n, '', ''
FROM generate_series(%(first)s::bigint, %(last)s) n, generate_series(1, %(effects)s) s,
    (SELECT tenant_id FROM runs_run WHERE workflow <> 'bench-old' ORDER BY id DESC LIMIT 1) p"""
_EVENTS = f"""
INSERT INTO runs_event (run_id, at, event, from_state, to_state, step_id, attempt, fence, actor, reason, data)
SELECT {_RUN}, {_AT}, 'bench', '', '', 'all', 0, 1, '', '', jsonb_build_object('n', s)
FROM generate_series(%(first)s::bigint, %(last)s) n, generate_series(1, %(events)s) s"""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How much of what each run has."""

    checkpoints: int
    effects: int
    events: int

    @property
    def rows(self) -> int:
        """Rows of one run in all."""
        return 1 + self.checkpoints + self.effects + self.events


def write(connection: psycopg.Connection, shape: Shape, *, first: int, runs: int, days: float) -> None:
    """Write so many runs that ended so long ago; the first has this number. One run must be there already."""
    for start in range(first, first + runs, BATCH):
        values = {**vars(shape), "first": start, "last": min(start + BATCH, first + runs) - 1, "days": days}
        for statement in (_RUNS, _CHECKPOINTS, _EFFECTS, _EVENTS):
            connection.execute(statement, values)


def sizes(connection: psycopg.Connection) -> tuple[int, int]:
    """Bytes of these tables, and of their indexes."""
    row = connection.execute(
        "SELECT sum(pg_table_size(t::regclass))::bigint, sum(pg_indexes_size(t::regclass))::bigint"
        " FROM unnest(%s::text[]) t",
        [list(TABLES)],
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def dead(connection: psycopg.Connection) -> int:
    """Rows that were removed and whose place is not free yet."""
    row = connection.execute(
        "SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname = ANY(%s)", [list(TABLES)]
    ).fetchone()
    assert row is not None
    return int(row[0])

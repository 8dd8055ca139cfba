"""The cost of a claim by the length of the queue, with and without quotas; nothing is run."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import psycopg

from durableops.engine.database import Database
from runs.claiming import Taker, claim

FEW = 1_000
TENANTS = 50
CLAIMS = 200
CAP = 1_000


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Milliseconds of one claim, the commit included."""

    few: float
    many: float

    @property
    def ratio(self) -> float:
        return round(self.many / self.few, 2)


def claim_cost(connection: psycopg.Connection, *, many: int, with_quotas: bool) -> Cost:
    """The median of claims with a thousand runs queued and with `many`; nine tenths belong to one of fifty tenants."""
    return Cost(
        few=_median(connection, queued=min(FEW, many), with_quotas=with_quotas),
        many=_median(connection, queued=many, with_quotas=with_quotas),
    )


def _median(connection: psycopg.Connection, *, queued: int, with_quotas: bool) -> float:
    worker = fill(connection, queued=queued, with_quotas=with_quotas)
    database = Database(name="bench claim")
    plans = tuple(row[0] for row in connection.execute("SELECT id FROM runs_workflow_plan").fetchall())
    found, after = [], 0
    try:
        for number in range(min(CLAIMS, queued // 2)):
            taker = Taker(worker_id=worker, after_tenant=after, gated=with_quotas, plans=plans)
            began = time.perf_counter()
            taken = database.retrying(partial(claim, taker=taker))
            # The first ones are planned, and read what the others find in memory.
            if number >= min(20, queued // 4):
                found.append((time.perf_counter() - began) * 1000)
            after = taken[-1].tenant_id
    finally:
        database.close()
        empty(connection)
    return round(statistics.median(found), 3)


def empty(connection: psycopg.Connection) -> None:
    connection.execute(
        "TRUNCATE runs_run, runs_checkpoint, runs_event, runs_receipt, runs_quota_policy, runs_slot, runs_worker"
        " CASCADE"
    )


def fill(connection: psycopg.Connection, *, queued: int, with_quotas: bool) -> UUID:
    """So many due runs, and a worker to claim them."""
    worker = uuid4()
    empty(connection)
    connection.execute(
        "INSERT INTO runs_tenant (slug, name) SELECT 'bench-' || g, 'Bench' FROM generate_series(1, %s) g"
        " ON CONFLICT (slug) DO NOTHING",
        [TENANTS],
    )
    connection.execute(
        "INSERT INTO runs_workflow_plan (workflow, version, schema_version, schema_hash, plan_hash, plan,"
        " source_fingerprint) VALUES ('bench-queue', 1, 1, 's', 'p', '{}', '') ON CONFLICT DO NOTHING"
    )
    connection.execute(_RUNS, {"queued": queued, "tenants": TENANTS})
    connection.execute(_CHECKPOINTS)
    connection.execute(_WORKER, [worker])
    if with_quotas:
        connection.execute(_QUOTAS, [CAP])
        connection.execute(_SLOTS)
    connection.execute("ANALYZE")
    return worker


_RUNS = """
INSERT INTO runs_run (id, tenant_id, workflow, plan_id, state, state_since, priority, due_at, input_hash, created_at,
    created_by, labels, fence, paused, paused_by, cancel_requested, cancel_requested_by, cancel_reason, lineage,
    head_seq, state_seq, step_id, step_entries, step_attempts, recoveries, max_recoveries, wake_cause, wake_detail,
    resumes, effects_avoided, progress_note, error_class, error_message, error_fingerprint)
SELECT gen_random_uuid(), t.id, 'bench-queue', p.id, 'queued', now(), 0, now() - g * interval '1 ms', 'h', now(),
    'bench', '{}', 0, false, '', false, '', '', 1, 0, 0, 'a', 1, 0, 0, 5, '', '', 0, 0, '', '', '', ''
FROM generate_series(1, %(queued)s) g
JOIN runs_workflow_plan p ON p.workflow = 'bench-queue'
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM runs_tenant WHERE slug LIKE 'bench-%%') t
    ON t.n = CASE WHEN g %% 10 < 9 THEN 0 ELSE (g / 10) %% %(tenants)s END"""
_CHECKPOINTS = """
INSERT INTO runs_checkpoint (run_id, seq, lineage, kind, step_id, next_step, plan_id, state, state_seq, output_hash,
    effects_through, fence, entry, attempt, at)
SELECT id, 0, 1, 'start', '', 'a', plan_id, '{}', 0, '', 0, 0, 0, 0, now() FROM runs_run"""
_WORKER = """
INSERT INTO runs_worker (id, number, host, pid, child_pid, counter, lease_seconds, heartbeat_seconds, draining,
    ended_why, versions, takes_slots)
VALUES (%s, nextval('runs_worker_number'), 'bench', 1, 0, 0, 10, 1, false, '', '{}', true)"""
_QUOTAS = """
INSERT INTO runs_quota_policy (tenant_id, resource, running_cap, version, updated_by)
SELECT id, '', %s, 1, 'bench' FROM runs_tenant WHERE slug LIKE 'bench-%%'"""
_SLOTS = """
INSERT INTO runs_slot (policy_id, number, taken)
SELECT p.id, g, 0 FROM runs_quota_policy p CROSS JOIN LATERAL generate_series(1, p.running_cap) g"""

"""Doubts, level-triggered: what was left without an outcome and without a word is in doubt; settled runs are woken."""

from __future__ import annotations

from durableops.engine import bell
from durableops.engine.database import Database
from durableops.engine.queues import leave_effects
from runs.doubting import BLOCKED, opened
from runs.transitions import fire_many

BATCH = 200

# Everything that ends a run or takes it from a worker says itself what it leaves behind; this finds what one forgot.
_LEFT = """
SELECT DISTINCT x.run_id FROM (
    SELECT e.run_id FROM runs_effect e JOIN runs_run r ON r.id = e.run_id
    WHERE e.state = 'intended' AND e.safety <> 'outbox' AND (r.finished_at IS NOT NULL
       OR (e.safety = 'legacy' AND NOT (r.state = 'running' AND r.fence = e.fence)))
    LIMIT %s) x ORDER BY x.run_id"""
_LOCK = "SELECT r.finished_at IS NOT NULL FROM runs_run r WHERE r.id = %s FOR NO KEY UPDATE SKIP LOCKED"
# Effects that were in doubt before doubts were rows.
_UNTOLD = f"""
WITH moved AS (
    SELECT e.id, e.tenant_id, e.run_id, e.step_id, e.fence, e.tool, e.resource, e.key, e.state, 'unknown' AS cause,
        'its outcome is unknown' AS why
    FROM runs_effect e WHERE e.state = 'in_doubt' AND e.safety <> 'outbox' AND NOT EXISTS (
        SELECT 1 FROM runs_doubt d WHERE d.effect_id = e.id AND d.settled_at IS NULL)
    ORDER BY e.id LIMIT %s
), {opened("moved")}
SELECT count(*) FROM moved"""


def put_in_doubt(database: Database) -> int:
    """Open a doubt for each effect that nobody is at any more and nobody spoke of. Returns for how many."""
    found = 0
    for (run_id,) in database.fetch(_LEFT, [BATCH]):
        with database.transaction() as cursor:
            cursor.execute(_LOCK, [run_id])
            row = cursor.fetchone()
            if row is not None:
                why = "nobody is at it any more."
                found += leave_effects(cursor, [run_id], ended=row[0], cause="worker_lost", because=why)
    return found + int(database.fetch(_UNTOLD, [BATCH])[0][0])


def wake_settled(database: Database) -> int:
    """Wake runs in doubt that nothing is left to settle for: whoever settled the last one did not wake them."""
    with database.transaction() as cursor:
        woken = fire_many(
            "settle",
            cursor,
            pick=f"r.state = 'in_doubt' AND NOT {BLOCKED.format(run='r')} ORDER BY r.id LIMIT {BATCH}"
            " FOR NO KEY UPDATE SKIP LOCKED",
            sets="wake_cause = 'settled', wake_detail = 'nothing was left to settle', woken_at = now(), lost_at = NULL",
            reason="nothing was left to settle",
        )
    bell.ring(len(woken))
    return len(woken)

"""Doubts, level-triggered: what nobody is at any more is in doubt, settled runs are woken, probes and people are asked.

Upkeep asks no probe itself: it wakes the run that needs to know, and its step asks. Its clocks remind and escalate, and
never guess.
"""

from __future__ import annotations

from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.database import Database
from durableops.engine.queues import leave_effects
from durableops.limits.clocks import Clock, Firing, Phase
from runs.doubting import BLOCKED, opened
from runs.transitions import fire_many, record_event

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


# What is due: a doubt's own clock, the tool's or the setting's.
_DUE = """
UPDATE runs_doubt d SET {column} = now() FROM (
    SELECT x.id, e.step_id, e.tool, e.resource, e.fence, extract(epoch FROM now() - x.since)::float8 AS elapsed,
        coalesce(e.{seconds}, %(usual)s) AS seconds, x.why, r.state
    FROM runs_doubt x JOIN runs_effect e ON e.id = x.effect_id JOIN runs_run r ON r.id = x.run_id
    WHERE x.settled_at IS NULL AND x.{column} IS NULL
      AND x.since + coalesce(e.{seconds}, %(usual)s) * interval '1 second' <= now()
    ORDER BY x.id LIMIT %(limit)s FOR NO KEY UPDATE OF x SKIP LOCKED
) due WHERE d.id = due.id AND d.settled_at IS NULL
RETURNING d.id, d.run_id, d.effect_id, due.step_id, due.tool, due.resource, due.fence, due.elapsed, due.seconds,
    due.why, due.state"""
_PROBE_DUE = """
r.state = 'in_doubt' AND NOT r.paused AND r.id IN (
    SELECT d.run_id FROM runs_doubt d WHERE d.settled_at IS NULL AND d.probe_at <= now())
ORDER BY r.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED"""


def look_after(database: Database) -> int:
    """One pass over all doubts. Returns how many things were done."""
    done = put_in_doubt(database) + wake_settled(database) + ask_probes(database)
    conf = get_conf()
    done += _fire_clock(database, "reminded_at", "remind_seconds", "doubt_reminder", conf.doubt_remind_seconds)
    return done + _fire_clock(
        database, "escalated_at", "escalate_seconds", "doubt_escalation", conf.doubt_escalate_seconds
    )


def _fire_clock(database: Database, column: str, seconds: str, event: str, usual: float) -> int:
    """Fire one of the clocks of every doubt it has come for: an event on its run, and a mark in the Inbox."""
    query = _DUE.format(column=column, seconds=seconds)
    with database.transaction() as cursor:
        cursor.execute(query, {"usual": usual, "limit": BATCH})
        fired = cursor.fetchall()
        for doubt, run, effect, step, tool, resource, fence, elapsed, limit, why, state in fired:
            firing = Firing(
                clock=Clock.DOUBT, limit_seconds=limit, trigger=f"{tool} for {resource!r} is still in doubt: {why}",
                elapsed_seconds=elapsed, phase=Phase.IN_DOUBT, next_state=state,
            )  # fmt: skip
            record_event(
                cursor, run, event, reason=f"{firing.trigger} Somebody has to settle it.", step_id=step, fence=fence,
                data={**firing.as_data(), "doubt": doubt, "effect": effect},
            )  # fmt: skip
    return len(fired)


def ask_probes(database: Database) -> int:
    """Wake runs in doubt whose tool's probe is to be asked. Returns how many."""
    with database.transaction() as cursor:
        woken = fire_many(
            "probe",
            cursor,
            pick=_PROBE_DUE,
            sets="wake_cause = 'probe', wake_detail = 'its probe is to be asked', woken_at = now(), lost_at = NULL",
            reason="its probe is to be asked",
        )
    bell.ring(len(woken))
    return len(woken)


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

"""The sweep: what a lost bell, a lost nudge or a crash between two commits left behind is found here.

Level-triggered: each pass looks at how things are, not at what was announced.
"""

from __future__ import annotations

from durableops.engine import bell, blocks, queues
from durableops.engine.claim import claimable
from durableops.engine.database import Database
from durableops.engine.family import sweep_parents
from durableops.engine.inbound import match_wait
from durableops.upkeep import doubts, loose_files
from runs.queues import left_asking, stuck, wake_asker_if_free
from runs.transitions import fire_many

BATCH = 200

_UNMATCHED = """
SELECT w.id, w.run_id FROM runs_wait w
WHERE w.state = 'open' AND w.kind = 'event' AND EXISTS (
    SELECT 1 FROM runs_inbound_event e
    WHERE e.tenant_id = w.tenant_id AND e.name = w.name AND e.correlation = w.correlation AND e.received_at >= w.since
      AND NOT EXISTS (SELECT 1 FROM runs_wait o WHERE o.run_id = w.run_id AND o.inbound_event_id = e.id))
ORDER BY w.id LIMIT %s"""
_ANSWERED = (
    "r.state = 'waiting' AND NOT EXISTS (SELECT 1 FROM runs_wait w WHERE w.run_id = r.id AND w.state = 'open'"
    " AND NOT (w.kind = 'turn' AND w.correlation = '' AND NOT EXISTS (SELECT 1 FROM runs_effect e"
    " WHERE e.run_id = r.id AND e.system = w.name AND e.state = 'queued' AND e.safety = 'legacy')))"
    " ORDER BY r.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED"
)
_DEAD_WAITS = """
UPDATE runs_wait SET state = 'cancelled', answered_at = now() WHERE id IN (
    SELECT w.id FROM runs_wait w JOIN runs_run r ON r.id = w.run_id
    WHERE w.state = 'open' AND r.finished_at IS NOT NULL ORDER BY w.id LIMIT 200)"""


def ring_for_claimable(database: Database, *, most: int = 64) -> int:
    """Ring once for each run that could be claimed now, up to `most`; no bell goes to a worker that is awake.

    What waits for its cap wakes nobody.
    """
    found = sum(claimable(database, isolated=isolated, most=most) for isolated in (False, True))
    return bell.ring(min(found, most)) if found else 0


def match_events(database: Database) -> int:
    """Answer open waits whose event is there: more than one event's transaction could take, or a sender that died."""
    rows = database.fetch(_UNMATCHED, [BATCH])
    for wait_id, run_id in rows:
        with database.transaction() as cursor:
            match_wait(cursor, run_id=run_id, wait_id=wait_id)
    return len(rows)


def wake_answered(database: Database) -> int:
    """Wake waiting runs that wait for nothing: whatever closed their last wait died before it woke them."""
    with database.transaction() as cursor:
        woken = fire_many(
            "wake",
            cursor,
            pick=_ANSWERED,
            sets="wake_cause = 'sweep', wake_detail = 'nothing was left to wait for', woken_at = now(), lost_at = NULL",
            reason="nothing was left to wait for",
        )
    return len(woken)


def wake_turns(database: Database) -> int:
    """Wake whoever is next at systems that are free: a switch was lifted, a word was lost, a run was passed by."""
    woken = 0
    with database.cursor() as cursor:
        systems = stuck(cursor)
    for system in systems:
        with database.transaction() as cursor:
            woken += len(queues.pass_on(cursor, [system]))
    return woken


def wake_askers(database: Database) -> int:
    """Wake runs that wait for what another run of their tenant does and that has an outcome, or that nobody is at."""
    with database.cursor() as cursor:
        asking = left_asking(cursor, limit=BATCH)
    woken = 0
    for run_id, asked in asking:
        with database.transaction() as cursor:
            woken += wake_asker_if_free(cursor, run_id, asked)
    return woken


def sweep(database: Database) -> int:
    """One pass over everything. Returns how many things were put right."""
    found = match_events(database) + wake_answered(database) + sweep_parents(database)
    found += wake_turns(database) + wake_askers(database) + doubts.look_after(database)
    database.transacting(blocks.return_ended)
    loose_files.remove_some(database)
    with database.cursor() as cursor:
        cursor.execute(_DEAD_WAITS)
    return found

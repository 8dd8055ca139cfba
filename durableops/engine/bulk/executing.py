"""Executing bulk actions: one run, one transaction, in which the verb is done and its outcome is written.

Killed at any moment, what was done has its outcome and what has none was not done. Several may execute at once: each
locks the line it works on, and holds the action's row shared, so that a pause or an abort comes between two runs.
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import OperationalError, connection, transaction
from psycopg import errors

from durableops import failpoints
from durableops.checkpoints.failures import safe_text
from durableops.engine.bulk.verbs import BulkVerb, verbs
from durableops.errors import DurableOpsError
from runs.models import Bulk

logger = logging.getLogger("durableops.bulk")

LOCK_PATIENCE = "SET LOCAL lock_timeout = '2s'"
LONGEST_DELAY_SECONDS = 60
MESSAGE_CHARACTERS = 2000

_NEXT = """
SELECT i.seq, i.run_id, i.facts FROM runs_bulk_item i JOIN runs_bulk b ON b.id = i.bulk_id
WHERE i.bulk_id = %s AND b.state = 'running' AND i.state = 'pending' AND i.due_at <= statement_timestamp()
ORDER BY i.due_at, i.seq LIMIT 1
FOR UPDATE OF i SKIP LOCKED FOR SHARE OF b"""
_SETTLE = """
UPDATE runs_bulk_item SET state = %s, message = %s, at = clock_timestamp() WHERE bulk_id = %s AND seq = %s"""
_PUT_OFF = """
UPDATE runs_bulk_item SET tries = tries + 1, due_at = now() + least(%s, 2 ^ least(tries, 10)) * interval '1 second'
WHERE bulk_id = %s AND seq = %s AND state = 'pending'"""
_FINISH = """
UPDATE runs_bulk b SET state = 'done', finished_at = now() WHERE b.id = %s AND b.state = 'running'
AND NOT EXISTS (SELECT 1 FROM runs_bulk_item i WHERE i.bulk_id = b.id AND i.state = 'pending')"""


def execute_batch(limit: int = 50) -> int:
    """Do up to `limit` runs of each running action, oldest action first. Returns how many lines were settled.

    Raises OperationalError when the database is away: then nothing of the run in hand was written.
    """
    known = {verb.name: verb for verb in verbs()}
    # One whose verb this process does not know is left to a process that does.
    running = Bulk.objects.filter(state="running", verb__in=sorted(known)).select_related("tenant").order_by("pk")
    able = [bulk for bulk in running if known[bulk.verb].ready(bulk.arguments)]
    return sum(_batch(bulk, known[bulk.verb], limit) for bulk in able)


def _batch(bulk: Bulk, verb: BulkVerb, limit: int) -> int:
    settled = 0
    for _ in range(limit):
        found = _one(bulk, verb)
        if found is None:
            break
        settled += found
    with connection.cursor() as cursor:
        cursor.execute(_FINISH, [bulk.pk])
    return settled


def _one(bulk: Bulk, verb: BulkVerb) -> int | None:
    """Do one run. 1 when its line was settled, 0 when it was put off, None when there is none to do now."""
    seq: int | None = None
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(LOCK_PATIENCE)
            cursor.execute(_NEXT, [bulk.pk])
            row = cursor.fetchone()
            if row is None:
                return None
            seq, run_id, facts = row
            state, message = _apply(bulk, verb, run_id, facts)
            cursor.execute(_SETTLE, [state, safe_text(message, limit=MESSAGE_CHARACTERS), bulk.pk, seq])
            failpoints.reach(failpoints.Point.BEFORE_BULK_ITEM_COMMITS)
    except OperationalError as error:
        if seq is None or not isinstance(error.__cause__, errors.LockNotAvailable | errors.DeadlockDetected):
            raise
        # Somebody holds the run's row, perhaps for long: the others need not wait for it.
        with connection.cursor() as cursor:
            cursor.execute(_PUT_OFF, [LONGEST_DELAY_SECONDS, bulk.pk, seq])
        return 0
    return 1


def _apply(bulk: Bulk, verb: BulkVerb, run_id: UUID, facts: str) -> tuple[str, str]:
    """The verb on one run: its outcome and what it said."""
    try:
        with transaction.atomic():
            return _asked(bulk, verb, run_id, facts)
    except OperationalError:
        raise
    except Exception as error:  # one run that breaks the verb must not keep the others from it (C010)
        logger.exception("bulk action %s failed for run %s", bulk.pk, run_id)
        return "failed", f"{type(error).__name__}: {error}"


def _asked(bulk: Bulk, verb: BulkVerb, run_id: UUID, facts: str) -> tuple[str, str]:
    """A refusal is an outcome: what the verb wrote it has taken back itself, and its audit entry stands."""
    given = verb.arguments(bulk.arguments) | ({"plan_hash": facts} if facts else {})
    try:
        done = verb.apply(
            run_id, tenant=bulk.tenant, actor=bulk.actor, reason=f"{bulk.reason} (bulk action {bulk.pk})", **given
        )
    except DurableOpsError as refused:
        return "refused", str(refused)
    return "done", done.message

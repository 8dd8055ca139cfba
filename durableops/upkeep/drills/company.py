"""Whether a drill is alone on its database: it kills workers, and its own would take what others left in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import connection
from django.db.models import QuerySet

from durableops.engine import commands
from durableops.errors import TransitionRefused
from durableops.upkeep.drills.checks import DrillStopped
from runs.models import Run, Tenant
from runs.models.worker import LOCK_CLASS
from runs.states import State

LABELS = {"started-by": "drill"}
ACTOR = "drill"
_LOCK = (LOCK_CLASS + 1, 1)
_LIVING = """
SELECT count(*) FROM runs_worker w WHERE w.ended_at IS NULL AND EXISTS (
    SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = %s::int::oid AND l.objid = w.number::oid
    AND l.objsubid = 2 AND l.granted
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))"""


@contextmanager
def alone() -> Iterator[None]:
    """Hold the database's drill lock. Raises DrillStopped while another drill or somebody else's worker is at work."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", _LOCK)
        if not cursor.fetchone()[0]:
            raise DrillStopped("another drill is playing on this database; wait for its end.")
    try:
        _cancel_leftovers()
        _refuse_company()
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", _LOCK)


def _cancel_leftovers() -> None:
    """Cancel what a drill that was itself killed left open: its other half is gone."""
    mine = Run.objects.open().filter(labels__contains=LABELS, cancel_requested=False)
    cancel_all(mine, reason="a new drill begins")


def cancel_all(runs: QuerySet[Run], *, reason: str) -> None:
    """Cancel these open runs."""
    for run in runs.select_related("tenant"):
        # One whose parent was cancelled just now has gone with it.
        with suppress(TransitionRefused):
            commands.cancel(run.pk, tenant=run.tenant, actor=ACTOR, reason=reason)


def _refuse_company() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_LIVING, [LOCK_CLASS])
        living = cursor.fetchone()[0]
    others = Run.objects.filter(state__in=[State.QUEUED, State.RUNNING], paused=False).exclude(labels__contains=LABELS)
    if living or others.exists():
        raise DrillStopped(
            f"{living} workers are at work on this database and {others.count()} runs of others are queued or running. "
            "A drill kills workers and its own take every run: stop and finish those, or set DATABASE_URL to a "
            "database of the drill's own."
        )


def tenant() -> Tenant:
    """The tenant of all drills."""
    return Tenant.objects.get_or_create(slug="drill", defaults={"name": "Drills"})[0]

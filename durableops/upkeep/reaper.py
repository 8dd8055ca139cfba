"""Noticing dead workers and taking their runs back.

A worker is judged by its counter, on this observer's own monotonic clock: unchanged for the lease time, it is dead. A
missing advisory lock is a hint that shortens the wait to two heartbeats. What was seen is forgotten whenever this
observer's own connection broke, and nobody is judged within one lease of the server's start: a restart of the database
silences everybody at once. A worker of this very machine whose processes do not exist any more is dead without a wait.
Several reapers may run; each judges for itself and the record decides.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durableops import failpoints
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.burial import declare_ended, release_runs
from durableops.engine.database import Database
from durableops.engine.family import nudge_parent
from durableops.engine.machine import has_gone, machine
from runs.models.worker import LOCK_CLASS
from runs.transitions import Fired

logger = logging.getLogger("durableops.reaper")

# The lock's key stands in pg_locks as (classid, objid); objsubid 2 marks keys of two integers.
LIVING = f"""
SELECT w.id, w.counter, w.lease_seconds, w.heartbeat_seconds, w.machine, w.pid, w.child_pid,
    EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = {LOCK_CLASS}::oid
            AND l.objid = w.number::oid AND l.objsubid = 2 AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())) AS locked,
    extract(epoch FROM clock_timestamp() - greatest(pg_postmaster_start_time(), (
        SELECT max(a.backend_start) FROM pg_stat_activity a WHERE a.backend_type = 'checkpointer')))::float8 AS
        server_age
FROM runs_worker w WHERE w.ended_at IS NULL ORDER BY w.number"""

SUSPECT_BEATS = 2
"""A worker without its lock is dead when its counter stood still for this many of its heartbeats."""


@dataclass(kw_only=True)
class Sighting:
    """When this observer last saw a worker's counter move, and since when its lock is missing."""

    counter: int
    moved_at: float
    lockless_since: float | None = None


class Reaper:
    """One observer."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: dict[UUID, Sighting] = {}
        self._connects = -1
        self._reconnected_at: float | None = None
        self._beats: dict[UUID, float] = {}

    def look(self, rows: Sequence[tuple[Any, ...]] | None = None) -> int:
        """Look at every living worker once; declare ended who must be. Returns how many were. Raises ConnectionLost.

        `rows` is the answer to `LIVING`, where somebody has asked already.
        """
        if rows is None:
            rows = self._database.fetch(LIVING)
        self._forget_after_reconnect()
        now = monotonic()
        ended = 0
        for worker_id, counter, lease, beat, place, pid, child_pid, locked, server_age in rows:
            sighting = self._sight(worker_id, counter, locked, now)
            gone = _gone(place, pid, child_pid)
            why = gone or self._verdict(sighting, lease=lease, beat=beat, server_age=server_age, now=now)
            if why and self._declare(worker_id, sighting, why, gone=bool(gone)):
                ended += 1
        living = {row[0] for row in rows}
        self._seen = {worker_id: seen for worker_id, seen in self._seen.items() if worker_id in living}
        self._beats = {row[0]: row[3] for row in rows}
        return ended

    def confirms_in(self) -> float | None:
        """Seconds until the nearest suspicion of a missing lock can be confirmed; None without one.

        Whoever looks again just then notices a death up to a pause earlier.
        """
        left = [
            max(seen.moved_at, seen.lockless_since) + SUSPECT_BEATS * self._beats[worker_id] - monotonic()
            for worker_id, seen in self._seen.items()
            if seen.lockless_since is not None
        ]
        # One that is due and was not confirmed is held back for another reason, which no haste removes.
        return min((seconds for seconds in left if seconds > 0), default=None)

    def release_batch(self) -> list[Fired]:
        """Take back a batch of runs of workers that have ended. Raises ConnectionLost."""
        with self._database.transaction() as cursor:
            released = release_runs(cursor)
            if released:
                failpoints.reach(failpoints.Point.REAPER_HOLDS_LOCKS)
        for fired in released:
            logger.warning(
                "run %s goes from %s to %s: its worker has gone", fired.run_id, fired.from_state, fired.to_state
            )
            if fired.to_state != "queued" and fired.parent_id is not None:
                nudge_parent(self._database, fired.run_id)
        return released

    def _forget_after_reconnect(self) -> None:
        if self._connects == self._database.connects:
            return
        if self._connects != -1:
            self._reconnected_at = monotonic()
        self._connects = self._database.connects
        self._seen.clear()

    def _sight(self, worker_id: UUID, counter: int, locked: bool, now: float) -> Sighting:
        sighting = self._seen.setdefault(worker_id, Sighting(counter=counter, moved_at=now))
        if counter != sighting.counter:
            sighting.counter, sighting.moved_at, sighting.lockless_since = counter, now, None
        if locked or not get_conf().session_locks:
            sighting.lockless_since = None
        elif sighting.lockless_since is None:
            sighting.lockless_since = now
        return sighting

    def _verdict(self, seen: Sighting, *, lease: float, beat: float, server_age: float, now: float) -> str:
        """Why this worker must be dead, or nothing."""
        if server_age < lease or (self._reconnected_at is not None and now - self._reconnected_at < lease):
            return ""
        still = now - seen.moved_at
        if still > lease:
            return f"its counter stood still for {still:.2f} s (lease {lease:g} s)"
        if seen.lockless_since is not None and min(still, now - seen.lockless_since) > SUSPECT_BEATS * beat:
            return f"its session is gone and its counter stood still for {still:.2f} s"
        return ""

    def _declare(self, worker_id: UUID, seen: Sighting, why: str, *, gone: bool) -> bool:
        def work(cursor: Any) -> bool:
            return declare_ended(cursor, worker_id, why=why, counter=seen.counter, gone=gone)

        ended = self._database.retrying(work)
        if ended:
            bell.forget_worker(worker_id)
            logger.warning("worker %s is declared dead: %s", worker_id, why)
        return ended


def _gone(place: str, pid: int, child_pid: int) -> str:
    """Why a worker of this machine is certainly dead, or nothing. Both its processes must have gone."""
    if not place or place != machine() or not has_gone(pid) or not (child_pid == 0 or has_gone(child_pid)):
        return ""
    return f"its processes have gone from this machine (parent {pid}, child {child_pid})"

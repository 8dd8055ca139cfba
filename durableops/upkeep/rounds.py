"""The rounds of upkeep: reaper, timers and sweep, over and over. Several processes may make them; any may die."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine.compensation import owing
from durableops.engine.database import ConnectionLost, Database
from durableops.upkeep import bulk, outbox, stranded, sweep, timers
from durableops.upkeep.reaper import Reaper
from runs.delivering import HAS_GONE
from runs.states import PARKED

logger = logging.getLogger("durableops.upkeep")
SWEEP_SECONDS = 2.0
CLOCK_SECONDS = 0.005
"""Just late enough that the time has certainly come."""
_GLANCE = f"""
SELECT EXISTS (SELECT 1 FROM runs_run r JOIN runs_worker w ON w.id = r.worker_id
               WHERE r.state = 'running' AND w.ended_at IS NOT NULL),
    EXISTS (SELECT 1 FROM runs_wait WHERE state = 'open' AND due_at <= now()),
    EXISTS (SELECT 1 FROM runs_wait WHERE state = 'open' AND expires_at <= now()),
    EXISTS (SELECT 1 FROM runs_run WHERE deadline_at <= now()
            AND state IN ({", ".join(f"'{s}'" for s in sorted(PARKED))})),
    EXISTS (SELECT 1 FROM runs_compensation_order o JOIN runs_run r ON r.id = o.run_id
            WHERE o.applied_at IS NULL AND r.finished_at IS NOT NULL),
    {HAS_GONE},
    EXISTS (SELECT 1 FROM runs_bulk WHERE state = 'running'),
    EXISTS (SELECT 1 FROM runs_run WHERE state = 'queued' AND NOT paused AND due_at <= now())"""


class Rounds:
    """One upkeep process."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._database = Database(name="upkeep")
        self._reaper = Reaper(self._database)
        self._next_sweep = 0.0
        self._bulk = bulk.BulkThread()
        self._relay = outbox.RelayThread() if get_conf().upkeep_relay_concurrency else None

    def run(self) -> None:
        """Make rounds until SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        self._bulk.start()
        if self._relay is not None:
            self._relay.start()
        while not self._stop.is_set():
            try:
                self.make_one()
            except ConnectionLost as lost:
                logger.warning("the database is away, upkeep waits: %s", str(lost).splitlines()[0])
                self._wait_for_database()
            self._stop.wait(self._pause())
        if self._relay is not None:
            self._relay.end()
        self._bulk.end()
        self._database.close()

    def _pause(self) -> float:
        """The usual pause, or a shorter one when a dead worker can be told from a slow one before it is over."""
        usual, confirms = get_conf().upkeep_seconds, self._reaper.confirms_in()
        return usual if confirms is None else min(usual, confirms + CLOCK_SECONDS)

    def make_one(self) -> int:
        """One round. Returns how many runs were moved. Raises ConnectionLost."""
        self._reaper.look()
        todo = self._glance()
        moved = 0
        duties = (
            self._release,
            timers.wake_due,
            timers.expire_waits,
            timers.end_overdue,
            owing.apply_ready,
            outbox.free_lanes,
        )
        for needed, work in zip(todo, duties, strict=False):
            moved += work(self._database) if needed else 0
        if todo[-2]:
            self._bulk.poke()
        if monotonic() >= self._next_sweep:
            self._next_sweep = monotonic() + SWEEP_SECONDS
            moved += sweep.sweep(self._database)
            stranded.find(self._database)
            moved += owing.release_unattended(self._database)
            bulk.forget_previews(self._database)
        if moved or todo[-1]:
            # Also for bells that were lost, and for runs whose delay has just passed.
            sweep.ring_for_claimable(self._database)
        return moved

    def _glance(self) -> tuple[bool, ...]:
        """Whether there is anything to release, wake, expire, time out or ring for: an idle round is two statements."""
        return self._database.fetch(_GLANCE)[0]

    def _release(self, database: Database) -> int:
        return len(self._reaper.release_batch())

    def _wait_for_database(self) -> None:
        while not self._stop.is_set():
            try:
                self._database.reconnect(patience=0.5)
            except ConnectionLost:
                continue
            break

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stop.set()

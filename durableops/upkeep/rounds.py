"""The rounds of upkeep: reaper, timers and sweep, over and over. Several processes may make them; any may die."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.database import ConnectionLost, Database
from durableops.upkeep import sweep, timers
from durableops.upkeep.reaper import Reaper

logger = logging.getLogger("durableops.upkeep")
SWEEP_SECONDS = 2.0


class Rounds:
    """One upkeep process."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._database = Database(name="upkeep")
        self._reaper = Reaper(self._database)
        self._next_sweep = 0.0

    def run(self) -> None:
        """Make rounds until SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        while not self._stop.is_set():
            try:
                self.make_one()
            except ConnectionLost as lost:
                logger.warning("the database is away, upkeep waits: %s", str(lost).splitlines()[0])
                self._wait_for_database()
            self._stop.wait(get_conf().upkeep_seconds)
        self._database.close()

    def make_one(self) -> int:
        """One round. Returns how many runs were moved. Raises ConnectionLost."""
        self._reaper.look()
        moved = len(self._reaper.release_batch())
        moved += timers.wake_due(self._database)
        moved += timers.expire_waits(self._database)
        moved += timers.end_overdue(self._database)
        if monotonic() >= self._next_sweep:
            self._next_sweep = monotonic() + SWEEP_SECONDS
            moved += sweep.sweep(self._database)
        if moved:
            bell.ring(moved)
        else:
            # Covers the lost bells, and runs whose delay has just passed.
            sweep.ring_for_claimable(self._database)
        return moved

    def _wait_for_database(self) -> None:
        while not self._stop.is_set():
            try:
                self._database.reconnect(patience=0.5)
            except ConnectionLost:
                continue
            break

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._stop.set()

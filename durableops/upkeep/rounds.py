"""The rounds of upkeep: reaper, timers and sweep, over and over. Several processes may make them; any may die."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import FrameType

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine.compensation import owing
from durableops.engine.database import ConnectionLost, Database
from durableops.upkeep import approvals, bulk, clocks, gates, outbox, still_sessions, stranded, sweep, timers
from durableops.upkeep.reaper import LIVING, Reaper
from durableops.upkeep.retention.thread import RetentionThread
from runs.delivering import HAS_GONE
from runs.states import PARKED

logger = logging.getLogger("durableops.upkeep")
IDLE_SECONDS = 1.0
"""Pause between two rounds while nothing runs and nothing is due."""
SWEEP_SECONDS = 2.0
QUIET_SECONDS = 15.0
"""After so long without anything to do, crashes have left behind what they will, and sweeps are few."""
QUIET_SWEEP_SECONDS = 120.0
CLOCK_SECONDS = 0.005
"""Just late enough that the time has certainly come."""
_PARKED = ", ".join(f"'{s}'" for s in sorted(PARKED))


@dataclass(frozen=True)
class Duty:
    """Something to do as soon as it is due."""

    due: str
    """SQL that says whether there is any of it."""
    work: Callable[[Database], int]
    """Does a batch of it; returns how many."""


DUTIES = (
    Duty("EXISTS (SELECT 1 FROM runs_wait WHERE state = 'open' AND due_at <= now())", timers.wake_due),
    Duty("EXISTS (SELECT 1 FROM runs_wait WHERE state = 'open' AND expires_at <= now())", timers.expire_waits),
    Duty(clocks.A_DEADLINE_HAS_COME, clocks.fire_deadlines),
    Duty(clocks.A_QUEUE_CLOCK_HAS_COME, clocks.fire_queue_waits),
    Duty("EXISTS (SELECT 1 FROM runs_run WHERE state = 'queued' AND deferred AND due_at <= now())", timers.bring_in),
    Duty(approvals.IS_DUE, approvals.fire_clocks),
    Duty(owing.IS_READY, owing.apply_ready),
    Duty(HAS_GONE, outbox.free_lanes),
)
# One question for everything, the living workers included: an idle round is this statement and nothing else.
_GLANCE = f"""
SELECT g.*, l.* FROM (
    SELECT EXISTS (SELECT 1 FROM runs_run r JOIN runs_worker w ON w.id = r.worker_id
                   WHERE r.state = 'running' AND w.ended_at IS NOT NULL),
        EXISTS (SELECT 1 FROM runs_bulk WHERE state = 'running'),
        {outbox.IS_READY},
        EXISTS (SELECT 1 FROM runs_run WHERE state = 'queued' AND NOT paused AND NOT deferred AND due_at <= now()),
        EXISTS (SELECT 1 FROM runs_run WHERE state = 'running'),
        extract(epoch FROM least(
            (SELECT min(due_at) FROM runs_wait WHERE state = 'open' AND due_at > now()),
            (SELECT min(expires_at) FROM runs_wait WHERE state = 'open' AND expires_at > now()),
            (SELECT min(deadline_at) FROM runs_run WHERE deadline_at > now() AND state IN ({_PARKED})),
            (SELECT min(queue_expires_at) FROM runs_run WHERE state = 'queued' AND queue_expires_at > now()),
            (SELECT min(due_at) FROM runs_run WHERE state = 'queued' AND deferred AND due_at > now()),
            {approvals.NEXT}
        ) - now())::float8,
        ARRAY[{", ".join(duty.due for duty in DUTIES)}]
) g LEFT JOIN ({LIVING}) l ON true"""


@dataclass(frozen=True)
class Glance:
    """What there is to do, in the order of `_GLANCE`."""

    release: bool
    bulk: bool
    messages: bool
    claimable: bool
    running: bool
    next_in: float | None
    """Seconds until the next clock."""
    due: list[bool]
    """For each of `DUTIES`."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        return not (self.release or self.bulk or self.claimable or self.running or any(self.due))


_OWN = len(fields(Glance))


class Rounds:
    """One upkeep process."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._database = Database(name="upkeep")
        self._reaper = Reaper(self._database)
        self._next_sweep = 0.0
        self._next_look = 0.0
        self._busy_at = monotonic()
        self._seen: Glance | None = None
        self._bulk = bulk.BulkThread()
        self._relay = outbox.RelayThread() if get_conf().upkeep_relay_concurrency else None
        self._retention = RetentionThread()

    def take_signals(self) -> None:
        """Stop at SIGTERM and SIGINT from now on. Whoever is told that upkeep runs may stop it the next moment."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)

    def run(self) -> None:
        """Make rounds until SIGTERM or SIGINT."""
        self.take_signals()
        self._bulk.start()
        if self._relay is not None:
            self._relay.start()
        self._retention.start()
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
        self._retention.end()
        self._database.close()

    def _pause(self) -> float:
        """The usual pause; a longer one while nothing happens; never past the next clock.

        Nor past the moment at which a dead worker can be told from a slow one.
        """
        seen, pause = self._seen, get_conf().upkeep_seconds
        if seen is not None and seen.is_idle:
            pause = max(pause, IDLE_SECONDS)
        if seen is not None and seen.next_in is not None:
            # Many clocks that come one after the other are served together.
            pause = min(pause, max(seen.next_in + CLOCK_SECONDS, get_conf().upkeep_seconds / 4))
        confirms = self._reaper.confirms_in()
        return pause if confirms is None else min(pause, confirms + CLOCK_SECONDS)

    def make_one(self) -> int:
        """One round. Returns how many runs were moved. Raises ConnectionLost."""
        rows = self._database.fetch(_GLANCE)
        seen = self._seen = Glance(*rows[0][:_OWN])
        if not seen.is_idle:
            self._busy_at = monotonic()
        dead = self._reaper.look([row[_OWN:] for row in rows if row[_OWN] is not None])
        moved = self._release() if seen.release or dead else 0
        for is_due, duty in zip(seen.due, DUTIES, strict=True):
            moved += duty.work(self._database) if is_due else 0
        if seen.bulk:
            self._bulk.poke()
        if seen.messages and self._relay is not None:
            self._relay.poke()
        if seen.claimable and monotonic() >= self._next_look:
            self._next_look = monotonic() + gates.LOOK_SECONDS
            gates.look(self._database)
        if monotonic() >= self._next_sweep:
            moved += self._sweep()
        if moved or seen.claimable:
            # Also for bells that were lost, and for runs whose delay has just passed.
            sweep.ring_for_claimable(self._database)
        return moved

    def _sweep(self) -> int:
        """Put right what crashes left behind: often while things happen, seldom when it has long been quiet."""
        is_quiet = monotonic() - self._busy_at > QUIET_SECONDS
        self._next_sweep = monotonic() + (QUIET_SWEEP_SECONDS if is_quiet else SWEEP_SECONDS)
        still_sessions.end(self._database)
        found = sweep.sweep(self._database)
        if found >= sweep.BATCH:
            self._next_sweep = 0.0  # there is more of it
        stranded.find(self._database)
        found += owing.release_unattended(self._database)
        bulk.forget_previews(self._database)
        return found

    def _release(self) -> int:
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

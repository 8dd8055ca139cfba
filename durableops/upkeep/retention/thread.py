"""The thread of upkeep that cleans: now and then, a step at a time, with longer pauses when live work has to wait."""

from __future__ import annotations

import logging
import threading

import psycopg

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine.database import ConnectionLost, Database
from durableops.upkeep.retention import erasures, relooks, sizes
from durableops.upkeep.retention.cleaner import LOCK_TIMEOUT, Cleaned, Cleaner

logger = logging.getLogger("durableops.retention")

PATIENCE_SECONDS = 5.0
"""After an error: the database is away, or something is wrong that a person has to see in the log."""
WAY_FACTOR = 4.0
LONGEST_PAUSE_SECONDS = 5.0

_LIVE_WORK_WAITS = """
SELECT EXISTS (SELECT 1 FROM runs_run
               WHERE state = 'queued' AND NOT paused AND due_at < now() - interval '1 second')"""
_MEASURE_NOW = """
UPDATE runs_retention_lane SET worked_at = now() WHERE name = 'sizes' AND name IN (
    SELECT name FROM runs_retention_lane
    WHERE name = 'sizes' AND coalesce(worked_at < now() - interval '1 hour', true) FOR UPDATE SKIP LOCKED)
RETURNING name"""


class Courtesy:
    """The pause after each step: as long as it takes to leave the others their share, longer while they wait."""

    def __init__(self, database: Database, over: threading.Event) -> None:
        self._database = database
        self._over = over
        self._since = monotonic()

    def __call__(self) -> bool:
        """Pause. False when the thread is to end."""
        worked = monotonic() - self._since
        share = min(1.0, max(0.01, get_conf().retention_share))
        pause = worked * (1 - share) / share
        if self._database.fetch(_LIVE_WORK_WAITS)[0][0]:
            pause = max(pause, worked) * WAY_FACTOR
        over = self._over.wait(min(pause, LONGEST_PAUSE_SECONDS))
        self._since = monotonic()
        return not over


class RetentionThread(threading.Thread):
    """Cleans every `retention_seconds`, in whichever upkeep process comes first."""

    def __init__(self) -> None:
        super().__init__(name="retention", daemon=True)
        self._over = threading.Event()
        self._database = Database(name="retention", options=LOCK_TIMEOUT)

    def end(self, timeout: float = 5.0) -> None:
        """Stop after the step in hand."""
        self._over.set()
        if self.is_alive():
            self.join(timeout)

    def run(self) -> None:
        try:
            while not self._over.wait(get_conf().retention_seconds):
                try:
                    self.make_one()
                except ConnectionLost as lost:
                    logger.warning("the cleaner waits for the database: %s", str(lost).splitlines()[0])
                    self._over.wait(PATIENCE_SECONDS)
                except (psycopg.Error, OSError):
                    logger.exception("the cleaner met an error; it will try again")
                    self._over.wait(PATIENCE_SECONDS)
        finally:
            self._database.close()

    def make_one(self) -> Cleaned:
        """One round: look again at what was asked for, clean, account for erasures, measure once an hour."""
        way = Courtesy(self._database, self._over)
        while relooks.look_again(self._database):
            if not way():
                return Cleaned()
        as_of = self._database.fetch("SELECT now()")[0][0]
        done = Cleaner(self._database, by="upkeep").clean(as_of, way)
        erasures.account(self._database)
        if self._is_time_to_measure():
            sizes.record(self._database)
        if done.rows:
            logger.info("cleaned %d rows of %d runs, %d bytes, %d files", done.rows, done.runs, done.bytes, done.files)
        return done

    def _is_time_to_measure(self) -> bool:
        self._database.fetch("INSERT INTO runs_retention_lane (name) VALUES ('sizes') ON CONFLICT DO NOTHING")
        return bool(self._database.fetch(_MEASURE_NOW))

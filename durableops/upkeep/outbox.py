"""Upkeep's part in the outbox: lanes of relays that have gone are freed, and a relay runs beside the rounds."""

from __future__ import annotations

import logging
import threading

import psycopg

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import relay_bell
from durableops.engine.database import Database
from durableops.engine.relaying.relay import HandlersHang, Relay
from runs import delivering
from runs.relaying import READY

logger = logging.getLogger("durableops.upkeep.outbox")
PAUSE_SECONDS = 5.0
POLL_SECONDS = 15.0
"""The rounds look for it in the question they ask anyway."""
IS_READY = f"EXISTS (SELECT 1 FROM runs_outbox_lane l WHERE {READY} AND l.due_at <= now())"


def free_lanes(database: Database) -> int:
    """Free a batch of lanes that a dead relay held, and say that there is something to deliver. Returns how many."""
    freed = database.transacting(delivering.free_lanes)
    if freed:
        logger.warning("%s lanes of the outbox are free again: their relay has gone", freed)
        relay_bell.ring()
    return freed


class RelayThread(threading.Thread):
    """The relay of an upkeep process, so that a small installation needs no other."""

    def __init__(self) -> None:
        super().__init__(name="relay", daemon=True)
        concurrency = get_conf().upkeep_relay_concurrency
        self._relay = Relay(concurrency=concurrency, name="upkeep relay", poll_seconds=POLL_SECONDS)
        self._poked_at = -PAUSE_SECONDS
        self._over = threading.Event()

    def poke(self) -> None:
        """There is something ready. Its destination may be left alone for a while, so not more often than it polls."""
        if monotonic() - self._poked_at >= get_conf().relay_poll_seconds:
            self._poked_at = monotonic()
            self._relay.poke()

    def end(self) -> None:
        """Stop after what is under way."""
        self._over.set()
        self._relay.stop()
        if self.is_alive():
            self.join(get_conf().grace_seconds + 5.0)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._relay.run()
            except HandlersHang:
                logger.exception("upkeep relays no more; start it again, or run `manage.py relay` beside it")
                return
            except psycopg.Error:
                logger.exception("the relay of upkeep met an error of the database and begins anew")
                self._over.wait(PAUSE_SECONDS)

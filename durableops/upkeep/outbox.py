"""Upkeep's part in the outbox: lanes of relays that have gone are freed, and a relay runs beside the rounds."""

from __future__ import annotations

import logging
import threading

import psycopg

from durableops.conf import get_conf
from durableops.engine import relay_bell
from durableops.engine.database import Database
from durableops.engine.relaying.relay import HandlersHang, Relay
from runs import delivering

logger = logging.getLogger("durableops.upkeep.outbox")
PAUSE_SECONDS = 5.0


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
        self._relay = Relay(concurrency=get_conf().upkeep_relay_concurrency, name="upkeep relay")
        self._over = threading.Event()

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

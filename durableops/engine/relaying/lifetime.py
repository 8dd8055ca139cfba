"""What keeps a relay alive in the eyes of others: its lease with a heartbeat, and the bell it listens to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from uuid import UUID

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.lease import RELAY_IDLE_BEAT_SECONDS, Lease
from durableops.engine.relay_bell import Listener
from durableops.engine.watch import Numbers

logger = logging.getLogger("durableops.relay.lease")


class Lifetime:
    """One life of a relay, from its registration to its end or to being declared dead."""

    def __init__(self, *, name: str, in_hand: Callable[[], int], heard: Callable[[], None]) -> None:
        # Heartbeats are written again anyway; they do not wait for the disk.
        self._database = Database(name=f"{name} lease", durable=False)
        self._lease = Lease(self._database, idle_beat=RELAY_IDLE_BEAT_SECONDS)
        self._in_hand = in_hand
        self._bell = Listener(heard)
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"{name} lease", daemon=True)
        self.is_lost = threading.Event()
        """Set when somebody declared this relay dead."""

    @property
    def id(self) -> UUID:
        return self._lease.id

    def begin(self, *, concurrency: int, destinations: Sequence[str], give_up: threading.Event) -> None:
        """Register, however long the database is away, and begin to renew. Returns early when asked to give up."""
        while not give_up.is_set():
            try:
                self._lease.register(
                    child_pid=0, versions_json="{}", concurrency=concurrency, kind="relay", destinations=destinations
                )
                break
            except ConnectionLost as lost:
                logger.warning("the relay waits for the database: %s", str(lost).splitlines()[0])
                give_up.wait(1.0)
        self._keeper.start()
        self._bell.start()

    def end(self, why: str) -> None:
        """Stop renewing and say that this relay has gone."""
        self._over.set()
        self._bell.end()
        if self._keeper.is_alive():
            self._keeper.join(5.0)
        try:
            if not self.is_lost.is_set():
                self._lease.end(why)
        except ConnectionLost as lost:
            logger.warning("the end of relay %s was not recorded: %s", self.id, str(lost).splitlines()[0])
        self._database.close()

    def _keep(self) -> None:
        renewed_at, was_busy = monotonic(), True
        while not self._over.wait(get_conf().heartbeat_seconds):
            held = self._in_hand()
            busy = held > 0
            if busy == was_busy and monotonic() - renewed_at < self._lease.beat_seconds(busy=busy):
                continue
            renewed_at, was_busy = monotonic(), busy
            try:
                numbers = Numbers(in_hand=held, connections=1)
                if not self._lease.renew(draining=False, numbers=numbers, busy=busy):
                    self.is_lost.set()
                    return
            except ConnectionLost as lost:
                logger.warning("the relay's lease was not renewed: %s", str(lost).splitlines()[0])

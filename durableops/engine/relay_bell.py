"""The bell of the relays: after a commit with messages, whoever made it says so to every relay that listens.

A hint, as the workers' bell is: without a broker, and for what is due later, relays look by themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from durableops.conf import get_conf
from durableops.engine import bell

logger = logging.getLogger("durableops.relay.bell")
LISTEN_SECONDS = 1.0
"""A listener looks this often whether it should go on listening."""


def ring() -> None:
    """Say that there is a message. Costs delay when the broker is away, nothing else."""
    try:
        bell.queue().connection.publish(_channel(), b"")
    except RedisError as error:
        logger.warning("relays were not rung, they will find the message by looking: %s", error)


class Listener(threading.Thread):
    """Calls `heard` for each ring, and once after each time it could not listen for a while."""

    def __init__(self, heard: Callable[[], None]) -> None:
        super().__init__(name="relay bell", daemon=True)
        self._heard = heard
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()

    def run(self) -> None:
        pause = 0.05
        while not self._over.is_set():
            try:
                self._listen()
                pause = 0.05
            except RedisError as error:
                logger.warning("the broker is away, the relay looks by itself: %s", error)
                self._over.wait(pause)
                pause = min(LISTEN_SECONDS, pause * 2)

    def _listen(self) -> None:
        client: Any = bell.queue().connection
        with client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(_channel())
            self._heard()
            while not self._over.is_set():
                if pubsub.get_message(timeout=LISTEN_SECONDS) is not None:
                    self._heard()


def _channel() -> str:
    return f"durableops:outbox:{get_conf().queue_name}"

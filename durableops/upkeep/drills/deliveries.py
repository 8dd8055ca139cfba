"""Sending things twice: two deliveries of the same request at the same moment, and bells that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from django.db import connection

from durableops.engine import bell


def twice[T](deliver: Callable[[], T]) -> list[T]:
    """Call `deliver` from two threads at once, each on a connection of its own, and return both answers."""
    gate = Barrier(2)

    def one(_: int) -> T:
        try:
            gate.wait()
            return deliver()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


def ring_twice() -> None:
    """Put two bells on the queue, whoever is awake: what a broker that delivers twice, or an old sender, would do."""
    bells = bell.queue()
    for _ in range(2):
        bells.enqueue_call(bell.ANSWER, timeout=-1, result_ttl=0, failure_ttl=0, ttl=bell.MESSAGE_SECONDS)


def bells_waiting() -> int:
    """How many bells nobody has answered yet."""
    return int(bell.queue().count)

"""The connections that a worker's steps and tools share. Who finds none free waits, and is told if that is in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

PATIENCE_SECONDS = 30.0


class Lender:
    """Lends up to `size` connections at once and keeps those that come back clean."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._lent: set[psycopg.Connection[Any]] = set()

    @property
    def open_connections(self) -> int:
        """How many there are just now."""
        return len(self._idle) + len(self._lent)

    def lend(self, make: Callable[[], psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
        """A connection, made by `make` if none is idle. Raises OperationalError when all stay in use."""
        if not self._places.acquire(timeout=PATIENCE_SECONDS):
            raise psycopg.OperationalError(
                f"all {self.size} connections for steps have been in use for {PATIENCE_SECONDS:g} s; "
                "raise DURABLEOPS_STEP_CONNECTIONS, or let steps do less inside their transactions."
            )
        try:
            found = self._take_idle() or make()
        except BaseException:
            self._places.release()
            raise
        with self._lock:
            self._lent.add(found)
        return found

    def take_back(self, connection: psycopg.Connection[Any]) -> None:
        """Its user needs it no more. One that is broken or in a transaction is closed."""
        with self._lock:
            if connection not in self._lent:
                return
            self._lent.remove(connection)
        if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        self._places.release()

    def _take_idle(self) -> psycopg.Connection[Any] | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                found = self._idle.pop()
            try:
                found.execute("")  # a server that was restarted has closed it
            except psycopg.OperationalError:
                found.close()
            else:
                return found

"""The engine's own database handle: one psycopg connection in autocommit, apart from the one step code uses.

Step code may leave Django's connection broken or inside a transaction; that must not reach what the engine writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from django.db import connections
from psycopg import errors

from durableops.conf import get_conf

logger = logging.getLogger("durableops.database")

RETRIES = 5
"""How often a statement that lost a deadlock is tried again."""
SPARE_CURSORS = 8
"""Kept with their last answers, which may hold the state of a run each."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


class ConnectionLost(Exception):
    """The connection broke. What was sent last may or may not have been committed."""


class EngineCursor(psycopg.Cursor[Any]):
    """A cursor with others beside it, for statements whose parameters are numbered already."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._numbered: list[psycopg.RawCursor[Any]] = []

    def numbered(self, count: int) -> list[psycopg.RawCursor[Any]]:
        """So many of them. The first few are the same each time: they know how parameters and answers are converted."""
        missing = count - len(self._numbered)
        cursors = self._numbered + [psycopg.RawCursor(self.connection) for _ in range(missing)]
        self._numbered = cursors[:SPARE_CURSORS]
        return cursors[:count]


class Database:
    """A connection that knows how to come back. One thread at a time; the lock is re-entrant for transactions."""

    def __init__(
        self, *, name: str = "engine", alias: str = "default", durable: bool = True, options: str = ""
    ) -> None:
        self._alias = alias
        self._name = name
        self._options = options
        """Further settings of its sessions, as the server's command line takes them."""
        self._durable = durable
        """False for what is written again anyway, such as heartbeats: its commits do not wait for the disk."""
        self._connection: psycopg.Connection[Any] | None = None
        self._spare: EngineCursor | None = None
        """A cursor that is not in use: making one costs as much as reading an answer."""
        self._lock = threading.RLock()
        self.connects = 0
        """How often it has connected: observers forget what they saw before the last time."""

    def connect(self) -> None:
        """Open the connection if there is none. Raises ConnectionLost when the server cannot be reached."""
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                return
            try:
                self._connection = psycopg.connect(**self._parameters())
            except psycopg.OperationalError as error:
                raise ConnectionLost(str(error)) from error
            self.connects += 1

    def _parameters(self) -> dict[str, Any]:
        wrapper = connections[self._alias]
        found = dict(wrapper.get_connection_params())
        for name in ("cursor_factory", "context", "server_side_binding", "pool", "isolation_level", "assume_role"):
            found.pop(name, None)
        found["application_name"] = f"durableops {self._name}"
        found["autocommit"] = True
        # No author's code runs inside these transactions. One that stands still for a lease belongs to a process that
        # was stopped, and its row locks would keep everybody from taking its runs back (C017).
        still = max(1, round(get_conf().lease_seconds * 1000))
        options = [found.get("options", ""), self._options, f"-c idle_in_transaction_session_timeout={still}"]
        if not self._durable:
            options.append("-c synchronous_commit=off")
        # Compiling a statement that finds a few rows takes a thousand times as long as running it.
        options.append("-c jit=off")
        if get_conf().prepare_statements:
            # Planning a claim anew each time takes longer than making it.
            options.append("-c plan_cache_mode=force_generic_plan")
        found["options"] = " ".join(options).strip()
        found["prepare_threshold"] = 1 if get_conf().prepare_statements else None
        return found

    def reconnect(self, *, patience: float | None = None) -> None:
        """Try until the server is back, or `patience` seconds have passed (then raises ConnectionLost)."""
        self.close()
        began, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.connect()
            except ConnectionLost as error:
                if patience is not None and time.monotonic() - began > patience:
                    raise
                logger.warning("database is away, trying again in %.2f s: %s", pause, str(error).splitlines()[0])
                time.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 2)

    @property
    def is_open(self) -> bool:
        """Whether it has a connection just now."""
        connection = self._connection
        return connection is not None and not connection.closed

    def close(self) -> None:
        with self._lock:
            self._spare = None
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def cursor(self) -> Iterator[EngineCursor]:
        """A cursor in autocommit. Turns a broken connection into ConnectionLost."""
        with self._lock:
            self.connect()
            assert self._connection is not None
            cursor, self._spare = self._spare or EngineCursor(self._connection), None
            try:
                yield cursor
                self._spare = cursor
            except (psycopg.OperationalError, errors.IdleInTransactionSessionTimeout) as error:
                if self._connection is None or self._connection.closed or _ends_session(error):
                    self.close()
                    raise ConnectionLost(str(error)) from error
                raise
            except psycopg.InterfaceError as error:
                self.close()
                raise ConnectionLost(str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[EngineCursor]:
        """A cursor inside one transaction."""
        with self.cursor() as cursor, cursor.connection.transaction():
            yield cursor

    def fetch(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return self.retrying(lambda cursor: _rows(cursor, query, params))

    def read(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing, however long the server is away."""
        while True:
            try:
                return self.fetch(query, params)
            except ConnectionLost:
                self.reconnect()

    def retrying[T](self, work: Callable[[EngineCursor], T]) -> T:
        """Call `work(cursor)` in autocommit, again if it lost a deadlock: then none of it was written."""
        return self._again(self.cursor, work)

    def transacting[T](self, work: Callable[[EngineCursor], T]) -> T:
        """Call `work(cursor)` in one transaction, again if it lost a deadlock."""
        return self._again(self.transaction, work)

    def _again[T](
        self,
        open_cursor: Callable[[], AbstractContextManager[EngineCursor]],
        work: Callable[[EngineCursor], T],
    ) -> T:
        for attempt in range(1, RETRIES + 1):
            try:
                with open_cursor() as cursor:
                    return work(cursor)
            except (errors.DeadlockDetected, errors.SerializationFailure):
                if attempt == RETRIES:
                    raise
                logger.info("statement lost a deadlock, trying again")
        raise AssertionError("unreachable")


def _ends_session(error: psycopg.Error) -> bool:
    """Whether the server has ended, or the client given up, the session; its socket may not have told yet.

    What was sent last may have been committed then, as with a socket that broke.
    """
    if isinstance(error, errors.PipelineAborted):
        return False  # another statement of the pipeline failed, and says why
    return error.sqlstate is None or error.sqlstate.startswith("57P") or error.sqlstate in ("25P03", "25P04")


def _rows(cursor: psycopg.Cursor[Any], query: str, params: Any) -> list[tuple[Any, ...]]:
    cursor.execute(query, params)
    return cursor.fetchall() if cursor.description else []

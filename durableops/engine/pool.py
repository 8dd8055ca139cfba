"""The few connections that all runs of a process share. Each is lent for one statement or transaction, never longer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from durableops.engine.committer import Committer
from durableops.engine.database import ConnectionLost, Database, EngineCursor


class Pool(Database):
    """Several connections behind the face of one. Any number of threads; who finds none free waits for one.

    A thread that has one and asks again is given the same, so that nobody waits for himself.
    """

    def __init__(self, *, size: int, name: str = "engine", shares_commits: bool = False) -> None:
        super().__init__(name=name)
        self.committer = Committer(name=name) if shares_commits and size > 1 else None
        """Where the writes of several runs become one commit; its connection is one of `size`."""
        self._members = [Database(name=name) for _ in range(size if self.committer is None else size - 1)]
        # The one given back last is lent first: no more are opened than are needed at once.
        self._free: queue.LifoQueue[Database] = queue.LifoQueue()
        for member in self._members:
            self._free.put(member)
        self._mine = threading.local()
        self._breaks = 0
        self._fresh_since: dict[Database, int] = {}

    @property
    def open_connections(self) -> int:
        """How many connections there are just now."""
        shared = self.committer is not None and self.committer.is_open
        return sum(member.is_open for member in self._members) + shared

    def connect(self) -> None:
        with self._lent() as member:
            member.connect()

    def reconnect(self, *, patience: float | None = None) -> None:
        with self._lent() as member:
            member.reconnect(patience=patience)
            self._fresh_since[member] = self._breaks

    def close(self) -> None:
        if self.committer is not None:
            self.committer.close()
        for member in self._members:
            member.close()

    @contextmanager
    def cursor(self) -> Iterator[EngineCursor]:
        with self._lent() as member:
            try:
                with member.cursor() as cursor:
                    yield cursor
            except ConnectionLost:
                self._breaks += 1
                raise

    @contextmanager
    def _lent(self) -> Iterator[Database]:
        held: Database | None = getattr(self._mine, "member", None)
        if held is not None:
            yield held
            return
        member = self._free.get()
        try:
            if self._fresh_since.get(member, 0) != self._breaks:
                # What broke another's connection, a restart, has most likely broken this idle one too.
                member.close()
                self._fresh_since[member] = self._breaks
            self._mine.member = member
            yield member
        finally:
            self._mine.member = None
            self._free.put(member)

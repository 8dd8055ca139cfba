"""Group commit: many threads hand in changes, one thread applies them and commits them together.

Each caller is answered only after the commit that holds its change; one flush to the disk serves all who wait.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

MAX_CHANGES_PER_COMMIT = 200

Change = Callable[[sqlite3.Connection], Any]


class Journal:
    """The only writer of a service's database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting: queue.SimpleQueue[tuple[Change, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def record[T](self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Apply a change and return its value once it is on the disk."""
        future: Future[T] = Future()
        self._waiting.put((change, future))
        return future.result()

    def close(self) -> None:
        """Commit what was handed in, then stop."""
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < MAX_CHANGES_PER_COMMIT and not self._waiting.empty():
                following = self._waiting.get()
                if following is None:
                    self._waiting.put(None)
                    break
                batch.append(following)
            self._commit(batch)

    def _commit(self, batch: list[tuple[Change, Future[Any]]]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            values = [change(self._connection) for change, _ in batch]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - each caller gets it; the thread must live, or the service hangs
            # One change spoils its batch: nobody in it is told "done", so nobody believes what is not on the disk.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), value in zip(batch, values, strict=True):
            future.set_result(value)

"""The threads on which a relay's messages are sent. One that does not come back is given up, and another takes over."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from django.db import connections

from durableops.engine import django_side


class Senders:
    """As many threads as are needed at once; each takes jobs until it is told that one of them was given up."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self.given_up = 0
        """Jobs that never came back, so far."""

    def send(self, job: Callable[[], None]) -> None:
        """Do a job on a thread. It must not raise."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()
        self._jobs.put(job)

    def give_up(self) -> None:
        """Note that one of the jobs is not waited for any more."""
        self.given_up += 1

    def close(self) -> None:
        """Let the threads end that have nothing to do. Those that never come back end with the process."""
        with self._lock:
            for _ in range(self._idle):
                self._jobs.put(None)
            self._idle = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                django_side.let_go()
            with self._lock:
                self._idle += 1
        connections.close_all()

"""Things a process has one of, made at first use, which is after the fork."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Once[T]:
    """Calls `make` once, whichever thread is first. `functools.lru_cache` calls it for each that comes meanwhile."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: T | None = None
        self._lock = threading.Lock()
        self.__doc__ = make.__doc__

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def __call__(self) -> T:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

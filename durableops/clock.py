"""The clocks this code reads: people's time, the database's time, and a monotonic one for measuring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone


def now() -> datetime:
    """Now, for what people see."""
    return timezone.now()


def db_now() -> datetime:
    """Now on the database's clock: leases and timers compare with this one, for workers' clocks differ."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: Any = cursor.fetchone()
    moment: datetime = found[0]
    return moment


_moved = 0.0


@contextmanager
def by_hand() -> Iterator[None]:
    """Let the monotonic clocks of this process be moved forward: for drills, which do not sleep.

    Afterwards they are what they were.
    """
    before = _moved
    try:
        yield
    finally:
        move(before - _moved)


def move(seconds: float) -> None:
    """Let so much time pass. Only while the clocks are moved by hand."""
    global _moved
    _moved += seconds


def uptime() -> float:
    """Seconds on a clock that nobody sets and that goes on while the machine sleeps, where there is one."""
    clock_id = getattr(time, "CLOCK_BOOTTIME", None)
    return _moved + (time.monotonic() if clock_id is None else time.clock_gettime(clock_id))


def monotonic() -> float:
    """Seconds on a clock that never jumps; the same for all processes of this machine."""
    return time.monotonic() + _moved

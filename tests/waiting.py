"""Waiting for something observable, with a deadline. The only place in the tests that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually[T](check: Callable[[], T], *, timeout: float = 10.0, every: float = 0.01, hoping_for: str = "") -> T:
    """Call `check` until it returns something true, and return that; fail after `timeout` seconds.

    A check may use `assert`: its last complaint is part of the failure.
    """
    end = time.monotonic() + timeout
    while True:
        complaint: AssertionError | None = None
        answer: T | None = None
        try:
            answer = check()
        except AssertionError as failed:
            complaint = failed
        if answer:
            return answer
        if time.monotonic() > end:
            wanted = hoping_for or getattr(check, "__name__", "the condition")
            raise AssertionError(
                f"{wanted} did not come true within {timeout:g} s; last answer: {complaint or answer!r}"
            )
        time.sleep(every)

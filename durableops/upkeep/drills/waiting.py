"""Waiting for something observable, with a deadline: a drill never sleeps for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

from durableops.upkeep.drills.checks import DrillStopped

LOOK_EVERY_SECONDS = 0.005
WITHIN_SECONDS = 15.0


def until[T](
    look: Callable[[], T | None],
    *,
    wanted: str,
    within: float = WITHIN_SECONDS,
    every: float = LOOK_EVERY_SECONDS,
    meanwhile: Callable[[], None] | None = None,
) -> T:
    """Look until there is an answer that is true, and return it.

    `meanwhile` is called between looks and may raise DrillStopped when there is nothing left to wait for.
    Raises DrillStopped after `within` seconds.
    """
    end = time.monotonic() + within
    while not (answer := look()):
        if meanwhile is not None:
            try:
                meanwhile()
            except DrillStopped:
                # It may have come, and more with it, since we looked.
                if answer := look():
                    return answer
                raise
        if time.monotonic() > end:
            raise DrillStopped(f"{wanted} did not come within {within:g} s.")
        time.sleep(every)
    return answer


def comes_true(look: Callable[[], object], *, within: float, every: float = LOOK_EVERY_SECONDS) -> bool:
    """Whether there was an answer that is true in time. For what a check will judge later: the drill goes on anyway."""
    try:
        until(lambda: bool(look()), wanted="it", within=within, every=every)
    except DrillStopped:
        return False
    return True

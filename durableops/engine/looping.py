"""The process's one event loop, on a thread of its own: async steps and tools run there, and must not hold it up."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from durableops.clock import monotonic
from durableops.engine.hand import Hand
from durableops.engine.once import Once

NAME = "event-loop"
_HAND: ContextVar[Hand] = ContextVar("durableops.hand")
"""Whose code a task is: tasks that a step makes inherit it."""


@Once
def event_loop() -> asyncio.AbstractEventLoop:
    """The loop; made at first use, after the fork."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=NAME, daemon=True).start()
    return loop


def is_running() -> bool:
    """Whether anybody has needed it yet."""
    return event_loop.is_made


def run[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop and wait for its result, from another thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, event_loop()).result()


def here(hand: Hand) -> asyncio.Task[Any]:
    """The task that calls this is the present step of `hand`. Returns it."""
    task = asyncio.current_task()
    assert task is not None
    task.set_name(f"{hand.run_id}/{hand.step.id}")
    _HAND.set(hand)
    return task


def at_work() -> Hand | None:
    """The run whose code has the loop at this moment, asked from another thread."""
    task = asyncio.current_task(event_loop())
    return None if task is None else task.get_context().get(_HAND)


def where(hand: Hand | None) -> str:
    """The line at which the loop's thread is, for people: the innermost of the step's own file, if it is in there."""
    frame = next((sys._current_frames().get(t.ident or 0) for t in threading.enumerate() if t.name == NAME), None)
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    own = hand.step.function.__code__.co_filename if hand is not None else ""
    line = next((found for found in reversed(stack) if found.filename == own), stack[-1])
    return f"{line.filename}:{line.lineno} in {line.name}"


class Pulse:
    """Asks the loop whether it still answers."""

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._answered_at = 0.0

    def lag(self) -> float:
        """Seconds by which the last answer was late, or by which one is overdue; asks again once there was one."""
        if not is_running():
            return 0.0
        asked, answered = self._asked_at, self._answered_at
        if asked is not None and answered < asked:
            return monotonic() - asked
        late = 0.0 if asked is None else answered - asked
        self._asked_at = monotonic()
        event_loop().call_soon_threadsafe(self._answer)
        return late

    def _answer(self) -> None:
        self._answered_at = monotonic()

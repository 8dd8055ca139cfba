"""Scripted workflows: a run's input is a list of words, and its one step does them in order.

OK, FAIL (each time), FAIL_ONCE, FATAL, SLEEP, WAIT, ASK, CALL, READ, DECIDE, PAGES, CHILDREN, BIG_RESULT, NOT_JSON and
CRASH (SIGKILL to its own process, on the first attempt). What was done, in this attempt, is the run's output.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from durableops import Fatal, Page, Retry, State, step, tool, workflow

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Script(State):
    words: list[str] = []


@tool(safety="keyed", name="scripted-send", resource_id="id")
def send(call: Any, *, n: int) -> dict[str, Any]:
    return {"id": call.resource, "n": n}


@tool(safety="read", name="scripted-look")
def look(call: Any) -> str:
    return "seen"


def _fail(run: Any, n: int) -> None:
    raise ValueError(f"word {n} fails")


def _fail_once(run: Any, n: int) -> str:
    if run.attempt == 1:
        raise ValueError(f"word {n} fails once")
    return "ok"


def _fatal(run: Any, n: int) -> None:
    raise Fatal(f"word {n} is fatal")


def _crash(run: Any, n: int) -> str:
    if run.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def _pages(run: Any, n: int) -> int:
    seen = 0
    for page in run.pages(lambda at: Page(items=[at or 0], next_cursor=(at or 0) + 1 if (at or 0) < 2 else None)):
        seen += len(page)
    return seen


WORDS: dict[str, Callable[[Any, int], Any]] = {
    "OK": lambda run, n: "ok",
    "FAIL": _fail,
    "FAIL_ONCE": _fail_once,
    "FATAL": _fatal,
    "CRASH": _crash,
    "PAGES": _pages,
    "SLEEP": lambda run, n: run.sleep(timedelta(hours=1), key=str(n)),
    "WAIT": lambda run, n: run.wait_for("scripted", correlation=run.id, key=str(n)),
    "ASK": lambda run, n: run.approval("scripted", key=str(n), question="go on?").by,
    "CALL": lambda run, n: run.call(send, resource=f"word-{n}", n=n)["id"],
    "READ": lambda run, n: run.call(look, key=str(n)),
    "DECIDE": lambda run, n: run.decide("scripted", {"n": n}, lambda n: n + 1, key=str(n)),
    "CHILDREN": lambda run, n: [c.state for c in run.children("scripted", [{"words": ["OK"]}] * 2, key=str(n))],
    "BIG_RESULT": lambda run, n: "x" * (2 * 1024 * 1024),
    "NOT_JSON": lambda run, n: object(),
}


def _do(run: Any) -> list[Any]:
    return [WORDS[word](run, n) for n, word in enumerate(run.state.words)]


@workflow(name="scripted", version=1, state=Script)
class Scripted:
    @step(retry=AT_ONCE, tools=[send, look])
    def first(run: Any) -> list[Any]:
        return _do(run)

    @step
    def last(run: Any) -> str:
        return "done"

"""Errands without end, plain and async: the runs of other people that share a worker with the run of a test."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from durableops import Call, Page, Retry, Run, State, step, tool, workflow
from tests.acceptance.scripted.script import deliver_to_file

AT_ONCE = Retry(max_attempts=20, first_delay=0, jitter=0)
IN_HAND_SECONDS = (0.1, 0.6)
PAUSE_SECONDS = 0.1


class Errands(State):
    folder: str
    errands: int = 0


def a_moment() -> float:
    """Seconds between what was sent and its record: never the same, so that a strike falls into some of them."""
    return random.uniform(*IN_HAND_SECONDS)


@tool(safety="keyed", name="acc-errand", timeout=30, retry=AT_ONCE, key_window=timedelta(days=1), resource_id="id")
def errand(call: Call, *, folder: str) -> dict[str, str]:
    done = deliver_to_file(call, folder)
    time.sleep(a_moment())
    return done


@tool(
    safety="keyed", name="acc-errand-async", timeout=30, retry=AT_ONCE, key_window=timedelta(days=1), resource_id="id"
)
async def errand_async(call: Call, *, folder: str) -> dict[str, str]:
    done = deliver_to_file(call, folder)
    await asyncio.sleep(a_moment())
    return done


def next_errand(done: int) -> Page:
    return Page(items=[done + 1], next_cursor=done + 1)


def is_over(run: Any) -> bool:
    """Whether everybody was sent home. Asked after a pause, so that a worker can change in between."""
    return (Path(run.state.folder) / "home").exists()


@workflow(name="acc-company-plain", version=1, state=Errands, max_recoveries=100)
class PlainCompany:
    @step(retry=AT_ONCE)
    def errands(run: Run) -> None:
        for [number] in run.pages(next_errand, start=0):
            run.call(errand, resource=f"{run.id}/{number}", folder=run.state.folder)
            run.state.errands += 1
            run.sleep(PAUSE_SECONDS, key=str(number))
            if is_over(run):
                return


@workflow(name="acc-company-async", version=1, state=Errands, max_recoveries=100)
class AsyncCompany:
    @step(retry=AT_ONCE)
    async def errands(run: Any) -> None:
        async for [number] in run.pages(next_errand, start=0):
            await run.call(errand_async, resource=f"{run.id}/{number}", folder=run.state.folder)
            run.state.errands += 1
            await run.sleep(PAUSE_SECONDS, key=str(number))
            if is_over(run):
                return

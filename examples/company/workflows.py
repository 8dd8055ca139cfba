"""Errands without end, in plain steps and in async ones: each is a ticket, then a moment in hand, then a short wait."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from functools import lru_cache
from typing import Any

import httpx

from durableops import Call, Page, Retry, Run, State, step, tool, workflow
from examples.desk import desk_address, post_ticket

OVER = "company-is-over"
"""The event that sends everybody home; correlated by the company's name."""
PAUSE = timedelta(seconds=0.2)
"""Between two errands, without a worker: whoever claims next may be another."""
IN_HAND_SECONDS = (0.3, 1.3)
"""After the desk has answered and before anything is on record: long, so that a strike falls into it, and never the
same, so that the company does not move in step from one worker to the next."""
AT_ONCE = Retry(max_attempts=6, first_delay=0.2, factor=2, max_delay=2)
ONE_DAY = timedelta(days=1)


class Errands(State):
    """Whose company it is, and how many errands were run."""

    company: str
    errands: int = 0


@tool(safety="keyed", timeout=10, retry=AT_ONCE, key_window=ONE_DAY, resource_id="id")
def run_errand(call: Call, *, title: str) -> dict[str, Any]:
    """Open a ticket, and keep its answer in hand for a moment."""
    opened = post_ticket(call, title=title, details={})
    time.sleep(a_moment())
    return {"id": opened["id"]}


@tool(safety="keyed", timeout=10, retry=AT_ONCE, key_window=ONE_DAY, resource_id="id")
async def run_errand_async(call: Call, *, title: str) -> dict[str, Any]:
    """The same on the event loop."""
    body = {"reference": call.resource, "title": title, "details": {}}
    call.check()
    answer = await _client().post(
        f"{desk_address()}/tickets", json=body, headers={"Idempotency-Key": call.key}, timeout=call.timeout
    )
    answer.raise_for_status()
    await asyncio.sleep(a_moment())
    return {"id": answer.json()["id"]}


@lru_cache(maxsize=1)
def _client() -> httpx.AsyncClient:
    # One for the process's loop. Without certificates, which take long to read: the desk is here and speaks plain HTTP.
    return httpx.AsyncClient(verify=False)  # noqa: S501


def a_moment() -> float:
    """Seconds to keep an answer in hand."""
    return random.uniform(*IN_HAND_SECONDS)  # noqa: S311 - nobody has to guess it


def next_errand(done: int) -> Page:
    """There is always one more."""
    return Page(items=[done + 1], next_cursor=done + 1)


def named(run: Any, number: int) -> dict[str, str]:
    """What the errand is called at the desk."""
    return {"resource": f"{run.id}/{number}", "title": f"errand {number} of {run.state.company}"}


@workflow(name="company-plain", version=1, state=Errands, deadline=timedelta(hours=1), max_recoveries=50)
class PlainCompany:
    """Runs errands on a thread."""

    @step(timeout=600)
    def errands(run: Run) -> None:
        for [number] in run.pages(next_errand, start=0):
            run.call(run_errand, **named(run, number))
            run.state.errands += 1
            told = run.wait_for(
                OVER, correlation=run.state.company, key=str(number), timeout=PAUSE, on_timeout="continue"
            )
            if told is not None:
                return

    @step(timeout=60)
    def report(run: Run) -> int:
        return int(run.state.errands)


@workflow(name="company-async", version=1, state=Errands, deadline=timedelta(hours=1), max_recoveries=50)
class AsyncCompany:
    """Runs errands on the event loop."""

    @step(timeout=600)
    async def errands(run: Any) -> None:
        async for [number] in run.pages(next_errand, start=0):
            await run.call(run_errand_async, **named(run, number))
            run.state.errands += 1
            told = await run.wait_for(
                OVER, correlation=run.state.company, key=str(number), timeout=PAUSE, on_timeout="continue"
            )
            if told is not None:
                return

    @step(timeout=60)
    async def report(run: Any) -> int:
        return int(run.state.errands)

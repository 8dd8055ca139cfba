"""The measured workflows: ten steps, a steady one to interrupt, two that wait long, three that call, two that post."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.marks import VARIABLE, mark
from durableops import Call, Migrated, Page, State, migration, step, tool, workflow

RESULT = ("6c1e9f0b7d5a" * 9)[:100]
STEADY_STEP_SECONDS = 0.03


class Named(State):
    """Who it is, for the marks."""

    key: str


@workflow(name="bench-ten", version=1, state=Named)
class Ten:
    """Ten no-op steps, as the peers run them."""

    @step
    def s1(run: Any) -> str:
        mark("start", run.state.key)
        return RESULT

    @step
    def s2(run: Any) -> str:
        return RESULT

    @step
    def s3(run: Any) -> str:
        return RESULT

    @step
    def s4(run: Any) -> str:
        return RESULT

    @step
    def s5(run: Any) -> str:
        return RESULT

    @step
    def s6(run: Any) -> str:
        return RESULT

    @step
    def s7(run: Any) -> str:
        return RESULT

    @step
    def s8(run: Any) -> str:
        return RESULT

    @step
    def s9(run: Any) -> str:
        return RESULT

    @step
    def s10(run: Any) -> str:
        mark("end", run.state.key)
        return RESULT


def _steady(run: Any) -> None:
    mark("step", run.state.key)
    time.sleep(STEADY_STEP_SECONDS)


@workflow(name="bench-steady", version=1, state=Named)
class Steady:
    """Steps that each take a moment, so that a kill falls into one or between two."""

    @step
    def t1(run: Any) -> None:
        _steady(run)

    @step
    def t2(run: Any) -> None:
        _steady(run)

    @step
    def t3(run: Any) -> None:
        _steady(run)

    @step
    def t4(run: Any) -> None:
        _steady(run)

    @step
    def t5(run: Any) -> None:
        _steady(run)

    @step
    def t6(run: Any) -> None:
        mark("step", run.state.key)
        mark("end", run.state.key)


SLOW_URL = "BENCH_SLOW_URL"
"""Variable with the address of the server that takes its time."""


@tool(safety="keyed", name="bench-ask", timeout=60)
async def ask(call: Call) -> int:
    """One slow request over a connection of its own, on the loop.

    Spoken plainly: a client library takes as long for each request as the engine for the whole run, and is not what is
    measured.
    """
    url = urlsplit(os.environ[SLOW_URL])
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(f"GET / HTTP/1.1\r\nHost: {url.netloc}\r\nIdempotency-Key: {call.key}\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        await reader.read()  # to its end: the server closes the connection
        return status
    finally:
        writer.close()


@tool(safety="keyed", name="bench-ask-plainly", timeout=60)
def ask_plainly(call: Call) -> int:
    """One slow request, on a thread."""
    return call.request("GET", os.environ[SLOW_URL]).status_code


@workflow(name="bench-waits", version=1, state=Named)
class Waits:
    """One step that waits ten seconds for an answer, as agents do."""

    @step
    async def wait(run: Any) -> int:
        mark("start", run.state.key)
        found: int = await run.call(ask, resource=run.state.key)
        mark("end", run.state.key)
        return found


@workflow(name="bench-waits-plainly", version=1, state=Named)
class WaitsPlainly:
    """The same in a plain step."""

    @step
    def wait(run: Any) -> int:
        mark("start", run.state.key)
        found: int = run.call(ask_plainly, resource=run.state.key)
        mark("end", run.state.key)
        return found


CALLS = 10


@tool(safety="keyed", name="bench-nothing")
def nothing(call: Call, *, n: int) -> int:
    """Answer at once: what is measured is the record of the call."""
    return n


@workflow(name="bench-call", version=1, state=Named)
class OneCall:
    """One step, one call."""

    @step
    def act(run: Any) -> None:
        mark("start", run.state.key)
        run.call(nothing, resource="it", n=0)
        mark("end", run.state.key)


@workflow(name="bench-loop", version=1, state=Named)
class Loop:
    """One step that calls in a loop."""

    @step
    def act(run: Any) -> None:
        mark("start", run.state.key)
        for n in range(CALLS):
            run.call(nothing, resource=str(n), n=n)
        mark("end", run.state.key)


@workflow(name="bench-many", version=1, state=Named)
class Many:
    """One step that calls for many at once."""

    @step
    def act(run: Any) -> None:
        mark("start", run.state.key)
        run.call_many(nothing, [{"resource": str(n), "n": n} for n in range(CALLS)])
        mark("end", run.state.key)


@tool(safety="outbox", name="bench-message")
def message(call: Call, *, n: int) -> int:
    """Take the message at once: what is measured is the way to here."""
    return n


@workflow(name="bench-post", version=1, state=Named)
class Post:
    """One step that posts many messages."""

    @step
    def act(run: Any) -> None:
        mark("start", run.state.key)
        run.call_many(message, [{"resource": str(n), "n": n} for n in range(CALLS)])
        mark("end", run.state.key)


@workflow(name="bench-post-one", version=1, state=Named)
class PostOne:
    """One step that posts one message."""

    @step
    def act(run: Any) -> None:
        run.call(message, resource="it", n=0)


STOP = "stop"
"""Name of the file, beside the marks, that ends `bench-pages`."""


@workflow(name="bench-pages", version=1, state=Named)
class Pages:
    """One page after the other, with nothing in between but their commits."""

    @step
    def turn(run: Any) -> None:
        stop = Path(os.environ[VARIABLE]).with_name(STOP)
        for _ in run.pages(lambda at: None if stop.exists() else Page(items=[at], next_cursor=at + 1), start=0):
            mark("page", run.state.key)


class Older(State):
    """As the first version of `bench-moving` keeps it."""

    key: str
    source: str = "here"


class Newer(State):
    """One source became several."""

    key: str
    sources: list[str]


@workflow(name="bench-moving", version=1, state=Older)
class MovingOld:
    """Decides something, calls once, and waits for a person."""

    @step
    def prepare(run: Any) -> str:
        return RESULT

    @step
    def load(run: Any) -> None:
        run.decide("how", {"n": 1}, lambda n: "slowly")
        run.call(nothing, resource="it", n=0)
        run.approval("go")


@workflow(name="bench-moving", version=2, state=Newer, migrate="reviewed")
class MovingNew:
    """The same, by other names."""

    @step(tools=[nothing])
    def prepare(run: Any) -> str:
        return RESULT

    @step
    def ingest(run: Any) -> None:
        run.decide("method", {"n": 1}, lambda n: "slowly")
        run.call(nothing, resource="it", n=0)
        run.approval("go")


@migration(MovingNew, from_version=1)
def source_became_sources(old: dict[str, Any]) -> Migrated:
    """Everything that a run has takes another name."""
    return Migrated(
        state={"key": old["key"], "sources": [old["source"]]}, steps={"load": "ingest"}, decisions={"how": "method"}
    )

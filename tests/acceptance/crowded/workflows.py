"""The workflows of a crowded worker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from durableops import Call, Retry, Run, step, tool, workflow
from runs.models import Tenant
from tests.acceptance.scripted.script import Facts, deliver_to_file, mark, pass_gate

AT_ONCE = Retry(max_attempts=4, first_delay=0, jitter=0)
ONE_DAY = timedelta(days=1)


@tool(safety="keyed", name="crowd-deliver", timeout=30, retry=AT_ONCE, key_window=ONE_DAY, resource_id="id")
def deliver(call: Call, *, folder: str) -> dict[str, str]:
    return deliver_to_file(call, folder)


@tool(safety="keyed", name="crowd-deliver-async", timeout=30, retry=AT_ONCE, key_window=ONE_DAY, resource_id="id")
async def deliver_async(call: Call, *, folder: str) -> dict[str, str]:
    await asyncio.sleep(0.01)
    return deliver_to_file(call, folder)


@tool(safety="read", name="crowd-wait", timeout=60)
def wait_at_gate(call: Call, *, folder: str) -> None:
    pass_gate(folder)


@workflow(name="crowd-mixed", version=1, state=Facts, max_recoveries=20)
class Mixed:
    """A plain step, an async one that waits at the gate, a plain one; a delivery in each."""

    @step(retry=AT_ONCE)
    def first(run: Run) -> None:
        run.call(deliver, resource=f"{run.id}/first", folder=run.state.folder)

    @step(retry=AT_ONCE)
    async def second(run: Any) -> None:
        mark(run, "began")
        while not (Path(run.state.folder) / "gate").exists():
            await asyncio.sleep(0.02)
        await run.call(deliver_async, resource=f"{run.id}/second", folder=run.state.folder)

    @step(retry=AT_ONCE)
    def third(run: Run) -> None:
        mark(run, "third")
        run.call(deliver, resource=f"{run.id}/third", folder=run.state.folder)


@workflow(name="crowd-plain", version=1, state=Facts, max_recoveries=20)
class Plain:
    """Tells its progress until the gate opens."""

    @step(retry=AT_ONCE)
    def loop(run: Run) -> None:
        mark(run, "began")
        while not (Path(run.state.folder) / "gate").exists():
            run.progress(1)
            threading.Event().wait(0.02)


@workflow(name="crowd-stuck", version=1, state=Facts)
class Stuck:
    """Never looks at anything on its first attempt; `what` says how."""

    @step(timeout=0.3, retry=Retry(max_attempts=2, first_delay=0, jitter=0))
    def hold_on(run: Run) -> str:
        mark(run, "began")
        if run.attempt == 1:
            HOLD[run.state.what]()
        return "gave in"


def _sleep_for_ever() -> None:
    threading.Event().wait(120)


def _hold_the_interpreter() -> None:
    # One call of C code that takes minutes and lets no other thread run.
    re.match(r"(a+)+$", "a" * 40 + "b")


def _hold_the_runs_row() -> None:
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM runs_run WHERE workflow = 'crowd-stuck' AND state = 'running' FOR UPDATE")
        threading.Event().wait(120)


HOLD = {"sleeps": _sleep_for_ever, "native": _hold_the_interpreter, "locks": _hold_the_runs_row}


@workflow(name="crowd-asks", version=1, state=Facts)
class Asks:
    """Uses Django's connection, then waits at the gate without it."""

    @step
    def ask(run: Run) -> int:
        count = Tenant.objects.count()
        mark(run, "asked")
        run.call(wait_at_gate, folder=run.state.folder)
        return count + Tenant.objects.count()


@workflow(name="crowd-alone", version=1, state=Facts)
class Alone:
    """Its middle step wants a process of its own; asked to, it takes that process down once."""

    @step
    def before(run: Run) -> None:
        mark(run, "did")

    @step(isolation="process", retry=AT_ONCE)
    def compute(run: Run) -> None:
        mark(run, "began")
        if run.state.fails and run.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if run.state.what == "gate":
            pass_gate(run.state.folder)

    @step
    def after(run: Run) -> None:
        mark(run, "did")


@workflow(name="crowd-hungry", version=1, state=Facts, max_recoveries=20)
class Hungry:
    """Its first attempt eats memory without end: up to what its worker tells of itself, and then on."""

    @step(retry=AT_ONCE)
    def eat(run: Run) -> str:
        mark(run, "began")
        eaten: list[bytearray] = []
        while run.attempt == 1:
            eaten.append(bytearray(b"x") * (16 * 2**20))
            if len(eaten) == TOLD_OF:
                threading.Event().wait(2.5)  # the attendant looks once a second, and tells the parent
        return "full"


TOLD_OF = 8


@workflow(name="crowd-blocks", version=1, state=Facts)
class Blocks:
    """Blocks the loop for longer than anybody should."""

    @step
    async def block(run: Any) -> None:
        mark(run, "began")
        time.sleep(3.0)

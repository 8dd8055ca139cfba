"""The two drivers that perform the logic's ops: one for plain steps, one for `async def` steps."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, assert_never

from django.db import close_old_connections

from durableops.clock import monotonic
from durableops.engine import commit
from durableops.engine.checks import stop_reason
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.ops import Ask, Attempt, Commit, Compute, Invoke, InvokeMany, Local, Logic, Op, Pause
from durableops.errors import CallTimeout, ControlSignal

POOL_THREADS = 64
PAUSE_SLICE_SECONDS = 0.05


class SyncDriver:
    """Performs each op where it stands."""

    def __init__(self, database: Database, hand: Hand) -> None:
        self.database = database
        self.hand = hand

    def run[T](self, logic: Logic[T]) -> T:
        """Perform a piece of logic to its end and return its value."""
        try:
            op = next(logic)
            while True:
                try:
                    answer = self.perform(op)
                except BaseException as error:  # noqa: BLE001 - goes back into the logic, which decides
                    op = logic.throw(error)
                else:
                    op = logic.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    def perform(self, op: Op) -> Any:
        match op:
            case Commit():
                return commit.execute(self.database, self.hand, op.write)
            case Ask():
                return op.work(self.database)
            case Invoke():
                return invoke(op)
            case InvokeMany():
                return _invoke_many(op)
            case Compute():
                value = op.function(*op.args, **(op.kwargs or {}))
                return _on_loop(value) if inspect.isawaitable(value) else value
            case Local():
                return _attempt(op.work)
            case Pause():
                return self._pause(op.seconds)
            case _:
                assert_never(op)

    def _pause(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and stop_reason(self.hand) is None:
            time.sleep(min(left, PAUSE_SLICE_SECONDS))


class AsyncDriver:
    """Awaits each op; the database and plain functions are used from threads, so that the loop is never blocked."""

    def __init__(self, database: Database, hand: Hand) -> None:
        self._sync = SyncDriver(database, hand)
        self.hand = hand

    async def run[T](self, logic: Logic[T]) -> T:
        """Perform a piece of logic to its end and return its value."""
        try:
            op = next(logic)
            while True:
                try:
                    answer = await self.perform(op)
                except BaseException as error:  # noqa: BLE001 - goes back into the logic, which decides
                    op = logic.throw(error)
                else:
                    op = logic.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    async def perform(self, op: Op) -> Any:
        match op:
            case Invoke():
                return await invoke_async(op)
            case InvokeMany():
                return await self._invoke_many(op)
            case Compute():
                value = op.function(*op.args, **(op.kwargs or {}))
                return await value if inspect.isawaitable(value) else value
            case Pause():
                return await self._pause(op.seconds)
            case _:
                return await asyncio.to_thread(self._sync.perform, op)

    async def _invoke_many(self, op: InvokeMany) -> list[Attempt]:
        places = asyncio.Semaphore(op.concurrency)

        async def one(call: Invoke) -> Attempt:
            async with places:
                return await invoke_async(call)

        return list(await asyncio.gather(*(one(call) for call in op.calls)))

    async def _pause(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and stop_reason(self.hand) is None:
            await asyncio.sleep(min(left, PAUSE_SLICE_SECONDS))


def invoke(op: Invoke) -> Attempt:
    """Call a tool's function once, here."""
    op.call.begin()
    if op.tool.is_async:
        return _on_loop(invoke_async(op))
    return _attempt(lambda: op.tool.function(op.call, **op.request), check=op.call.check)


async def invoke_async(op: Invoke) -> Attempt:
    """Call a tool's function once from the loop; a coroutine is cut off at the call's timeout."""
    op.call.begin()
    if not op.tool.is_async:
        return await asyncio.to_thread(_attempt, lambda: op.tool.function(op.call, **op.request), check=op.call.check)
    began = monotonic()
    try:
        op.call.check()
        async with asyncio.timeout(op.tool.timeout) as clock:
            value = await op.tool.function(op.call, **op.request)
    except TimeoutError as error:
        cut = CallTimeout(f"{op.tool.name} was cut off after {op.tool.timeout:g} s.") if clock.expired() else error
        return Attempt(error=cut, elapsed=monotonic() - began)
    except (Exception, ControlSignal) as error:  # noqa: BLE001 - an author's tool may raise anything
        return Attempt(error=error, elapsed=monotonic() - began)
    return Attempt(value=value, elapsed=monotonic() - began)


def _attempt(function: Callable[[], Any], *, check: Callable[[], None] | None = None) -> Attempt:
    began = monotonic()
    try:
        if check is not None:
            check()
        value = function()
    except (Exception, ControlSignal) as error:  # noqa: BLE001 - an author's tool may raise anything
        return Attempt(error=error, elapsed=monotonic() - began)
    return Attempt(value=value, elapsed=monotonic() - began)


def _invoke_many(op: InvokeMany) -> list[Attempt]:
    if len(op.calls) == 1:
        return [invoke(op.calls[0])]
    attempts: list[Attempt | None] = [None] * len(op.calls)
    todo = iter(enumerate(op.calls))
    lock = threading.Lock()

    def work() -> None:
        try:
            while (item := _next(todo, lock)) is not None:
                attempts[item[0]] = invoke(item[1])
        finally:
            close_old_connections()

    workers = [_pool().submit(work) for _ in range(min(op.concurrency, len(op.calls)))]
    for worker in workers:
        worker.result()
    return [attempt for attempt in attempts if attempt is not None]


def _next(todo: Iterator[tuple[int, Invoke]], lock: threading.Lock) -> tuple[int, Invoke] | None:
    with lock:
        return next(todo, None)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=POOL_THREADS, thread_name_prefix="call")


@lru_cache(maxsize=1)
def event_loop() -> asyncio.AbstractEventLoop:
    """The process's one event loop, on a thread of its own; made at first use, after the fork."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="event-loop", daemon=True).start()
    return loop


def _on_loop[T](value: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await value

    return asyncio.run_coroutine_threadsafe(awaited(), event_loop()).result()

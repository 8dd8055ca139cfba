"""The two drivers that perform the logic's ops: one for plain steps, one for `async def` steps."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import commit, django_side, looping
from durableops.engine.checks import stop_reason
from durableops.engine.committer import MOST
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.once import Once
from durableops.engine.ops import (
    Aside,
    Ask,
    Attempt,
    Collect,
    Commit,
    Compute,
    Invoke,
    InvokeMany,
    Local,
    Logic,
    Op,
    Pause,
)
from durableops.errors import CallTimeout, ControlSignal, Suspended
from runs.fenced import Written

POOL_THREADS = 64
ANSWER_SLICE_SECONDS = 0.05
PAUSE_SLICE_SECONDS = 0.5
"""A pause looks this often whether its time limits have come; what is noticed from outside ends it at once."""


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
        except ControlSignal as signal:
            self.hand.leaving = signal
            raise

    def perform(self, op: Op) -> Any:
        if not isinstance(op, Compute | Local):
            # Here the step waits: nobody else's code should wait for the connection it does not use meanwhile.
            django_side.let_go()
        match op:
            case Commit():
                return commit.execute(self.database, self.hand, op.write, also=op.also)
            case Ask():
                return op.work(self.database)
            case InvokeMany():
                return ThreadBatch(op)
            case Collect():
                assert isinstance(op.batch, ThreadBatch)
                return op.batch.collect(op.seconds)
            case Compute():
                value = op.function(*op.args, **(op.kwargs or {}))
                return _on_loop(value) if inspect.isawaitable(value) else value
            case Aside():
                return op.work()
            case Local():
                return _attempt(op.work)
            case Pause():
                return self._pause(op.seconds)
            case _:
                assert_never(op)

    def _pause(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and stop_reason(self.hand) is None and not self.hand.stop.is_set():
            self.hand.stop.wait(min(left, PAUSE_SLICE_SECONDS))


class AsyncDriver:
    """Awaits each op; the database and plain functions are used from threads, so that the loop is never blocked."""

    def __init__(self, database: Database, hand: Hand) -> None:
        self._sync = SyncDriver(database, hand)
        self.hand = hand
        self._turn = asyncio.Lock()
        """Things awaited together commit one after the other: each under the fence and head the one before left."""

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
        except Suspended as signal:
            # It can wait until other tasks of the step have their answers from systems that are never asked twice.
            while any(call.must_be_answered for call in self.hand.under_way.values()):
                await asyncio.sleep(ANSWER_SLICE_SECONDS)
            self.hand.leaving = signal
            raise
        except ControlSignal as signal:
            self.hand.leaving = signal
            raise

    async def perform(self, op: Op) -> Any:
        match op:
            case Commit():
                return await self._commit(op)
            case InvokeMany():
                return TaskBatch(op)
            case Collect():
                assert isinstance(op.batch, TaskBatch)
                return await op.batch.collect(op.seconds)
            case Compute():
                value = op.function(*op.args, **(op.kwargs or {}))
                return await value if inspect.isawaitable(value) else value
            case Pause():
                return await self._pause(op.seconds)
            case Local() | Aside():
                return await _to_its_end(call_threads(), self._sync.perform, op)
            case _:
                return await _to_its_end(_database_threads(), self._sync.perform, op)

    async def _commit(self, op: Commit) -> Written:
        try:
            await self._turn.acquire()
        except asyncio.CancelledError:
            self.hand.resume_pending(op.write)
            raise
        try:
            now = replace(op.write, fence=self.hand.fence, seq=self.hand.head_seq)
            written: Written = await _to_its_end(_database_threads(), self._sync.perform, replace(op, write=now))
            return written
        finally:
            self._turn.release()

    async def _pause(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and stop_reason(self.hand) is None and not self.hand.stop.is_set():
            await asyncio.sleep(min(left, PAUSE_SLICE_SECONDS))


class ThreadBatch:
    """Calls under way on threads; a single call is made right here."""

    def __init__(self, op: InvokeMany) -> None:
        self._answers: queue.SimpleQueue[tuple[int, Attempt]] = queue.SimpleQueue()
        self._todo = list(enumerate(op.calls))[::-1]
        self._left = len(op.calls)
        if self._left == 1:
            self._work()
            return
        for _ in range(min(op.concurrency, self._left)):
            call_threads().submit(self._work)

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def stop(self) -> list[int]:
        """See ops.Batch. Each is taken by one thread: whoever pops it has it."""
        found: list[int] = []
        while self._todo:
            try:
                found.append(self._todo.pop()[0])
            except IndexError:  # a thread that makes calls took the last one
                break
        return found

    def collect(self, seconds: float) -> list[tuple[int, Attempt]]:
        """See ops.Collect."""
        end = monotonic() + seconds
        found: list[tuple[int, Attempt]] = []
        while self._left and (wait := end - monotonic()) > 0:
            try:
                found.append(self._answers.get(timeout=wait))
            except queue.Empty:
                break
            self._left -= 1
        return found

    def _work(self) -> None:
        try:
            while self._todo:
                try:
                    index, call = self._todo.pop()
                except IndexError:  # another thread took the last one
                    return
                try:
                    attempt = invoke(call)
                except BaseException as error:  # noqa: BLE001 - whoever collects waits for this answer
                    attempt = Attempt(error=error)
                self._answers.put((index, attempt))
        finally:
            django_side.let_go()


class TaskBatch:
    """Calls under way as tasks of the running loop."""

    def __init__(self, op: InvokeMany) -> None:
        self._places = asyncio.Semaphore(op.concurrency)
        self._begun: set[int] = set()
        self._tasks = {asyncio.ensure_future(self._one(n, call)): n for n, call in enumerate(op.calls)}

    @property
    def is_done(self) -> bool:
        return not self._tasks

    def stop(self) -> list[int]:
        """See ops.Batch. A task that waits for its place is cancelled before it begins."""
        for task in self._tasks:
            task.cancel()
        return [n for n in self._tasks.values() if n not in self._begun]

    async def collect(self, seconds: float) -> list[tuple[int, Attempt]]:
        """See ops.Collect."""
        done, _ = await asyncio.wait(self._tasks, timeout=seconds) if self._tasks else (set(), set())
        return [(self._tasks.pop(task), task.result()) for task in done]

    async def _one(self, n: int, call: Invoke) -> Attempt:
        async with self._places:
            self._begun.add(n)
            return await invoke_async(call)


def invoke(op: Invoke) -> Attempt:
    """Call a tool's function once, here."""
    op.call.begin()
    if op.tool.is_async:
        return _on_loop(invoke_async(op))
    return _attempt(lambda: op.tool.function(op.call, **op.request), check=op.call.check)


def _plainly(op: Invoke) -> Attempt:
    try:
        return _attempt(lambda: op.tool.function(op.call, **op.request), check=op.call.check)
    finally:
        django_side.let_go()


async def invoke_async(op: Invoke) -> Attempt:
    """Call a tool's function once from the loop; a coroutine is cut off at the call's timeout."""
    op.call.begin()
    if not op.tool.is_async:
        made: Attempt = await _on(call_threads(), _plainly, op)
        return made
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


@Once
def call_threads() -> ThreadPoolExecutor:
    """Where plain tools run that must not hold up a step or the loop; threads are made as they are needed."""
    return ThreadPoolExecutor(max_workers=POOL_THREADS + get_conf().concurrency, thread_name_prefix="call")


@Once
def _database_threads() -> ThreadPoolExecutor:
    """Where the database is used for async steps: enough threads to fill a shared commit."""
    return ThreadPoolExecutor(max_workers=MOST, thread_name_prefix="database")


def _on(executor: Executor, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(executor, partial(context.run, function, *args))


async def _to_its_end(executor: Executor, function: Callable[..., Any], *args: Any) -> Any:
    """Await a function on a thread; whoever cancels waits for its end.

    A commit that was only abandoned would go on behind the back of the one that then writes how the step ended.
    """
    future = _on(executor, function, *args)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()


def _on_loop[T](value: Awaitable[T]) -> T:
    async def awaited() -> T:
        return await value

    return looping.run(awaited())

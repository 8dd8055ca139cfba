"""The child of a worker: an RQ worker that sleeps on its queue and, when awake, takes runs until none is claimable.

Runs in hand go on while it sleeps.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connections
from redis.exceptions import RedisError
from rq import Queue, SimpleWorker
from rq.exceptions import DequeueTimeout, StopRequested
from rq.job import Job
from rq.serializers import JSONSerializer

from durableops import failpoints
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.advance import advance
from durableops.engine.attendant import Attendant
from durableops.engine.database import ConnectionLost
from durableops.engine.hand import Stopping
from durableops.engine.in_hand import Held, InHand
from durableops.engine.pool import Pool
from durableops.engine.watch import Watch

logger = logging.getLogger("durableops.worker")

PLACE_SECONDS = 0.25
"""Whoever waits for a place looks this often whether the process stops."""


class Listener:
    """Takes runs for one worker id and moves up to so many of them at once, each on a thread of its own.

    With one place there is nothing to do meanwhile: the run is moved by the thread that claims.
    """

    def __init__(
        self,
        *,
        worker_id: UUID,
        stopping: Stopping,
        watch: Watch | None = None,
        name: str = "worker",
        concurrency: int = 1,
        isolated: bool = False,
    ) -> None:
        self.worker_id = worker_id
        self.stopping = stopping
        self.watch = watch
        self.database = Pool(size=get_conf().connections, name=name, shares_commits=concurrency > 1)
        lines = None if watch is None else watch.lines
        self.in_hand = InHand(worker_id=worker_id, places=concurrency, isolated=isolated, lines=lines)
        self.failure: BaseException | None = None
        """The engine's own error that ends this process; a step's errors never come here."""
        self.wake: Callable[[], None] = lambda: None
        """Ends the sleep of the thread that listens."""
        self._threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="run")
        self._count = threading.Lock()
        self._taken = 0

    def fill(self) -> int:
        """Take runs until nothing is claimable; while all places are taken, wait for one. Returns how many were taken.

        Survives a database that goes away. Runs in hand go on when it has returned.
        """
        taken = 0
        while self.stopping.since is None:
            if not self.in_hand.wait_for_place(PLACE_SECONDS):
                continue
            try:
                found = self.in_hand.claim(self.database)
            except ConnectionLost as lost:
                self._recover(lost)
                continue
            if not found:
                break
            taken += len(found)
            for held in found:
                self._begin(held)
        return taken

    def drain(self) -> int:
        """Take runs until nothing is claimable and nothing is in hand. Returns how many were taken.

        Raises what made the engine itself fail.
        """
        before = self._taken
        while True:
            was_idle = not self.in_hand.held()
            found = self.fill()
            # One place: what was found has been moved, and it was looked once more after it.
            if self.in_hand.places == 1 or self.stopping.since is not None or (was_idle and not found):
                break
            while not self.in_hand.wait_for_end(PLACE_SECONDS):
                pass
        while not self.in_hand.wait_for_end(PLACE_SECONDS):
            pass
        if self.failure is not None:
            raise self.failure
        return self._taken - before

    def wind_up(self, why: str) -> None:
        """Claim nothing more, let the runs in hand go at their next checkpoint, and end; the parent starts another."""
        if self.watch is not None:
            self.watch.ask_to_be_replaced(at=monotonic(), why=why)
        self.stopping.begin(grace_seconds=get_conf().grace_seconds)
        self.wake()

    def close(self) -> None:
        """Close what is open; nothing may be in hand."""
        self._threads.shutdown()
        self.database.close()

    def _begin(self, held: Held) -> None:
        if self.in_hand.places == 1:
            self._move(held)
        else:
            self._threads.submit(self._move_on_thread, held)

    def _move_on_thread(self, held: Held) -> None:
        try:
            self._move(held)
        except BaseException as error:  # noqa: BLE001 - nobody waits for this thread; whoever listens raises it
            logger.debug("the thread of run %s ends with %r", held.claimed.run_id, error)
        finally:
            connections.close_all()

    def _move(self, held: Held) -> None:
        """Move the run in a place, and those that follow it there."""
        try:
            while True:
                with self._count:
                    self._taken += 1
                advance(self.database, held.claimed, worker_id=self.worker_id, stopping=self.stopping, held=held)
                if held.following is None:
                    if held.claimed.slot is not None or held.claimed.resource_slot is not None:
                        # Its place under a cap is free: what waited for it was not claimable until now.
                        bell.ring()
                    break
                held.go_on_with(held.following)
        except ConnectionLost as lost:
            self.in_hand.release(held)
            self._recover(lost)
        except BaseException as error:
            # A run stands under our name and is in nobody's hand, and RQ would log this and go on: nothing would
            # ever take the run from a worker that lives. The process ends; its parent gives the run back.
            self.failure = self.failure or error
            self.in_hand.abandon(held)
            self.stopping.begin(grace_seconds=0)
            self.wake()
            raise
        else:
            self.in_hand.release(held)

    def _recover(self, lost: ConnectionLost) -> None:
        """Come back, and give back what stands under our name without being in hand."""
        while self.stopping.since is None:
            logger.warning("the database went away: %s", str(lost).splitlines()[0])
            try:
                self.database.reconnect()
                self.in_hand.release_unheld(self.database, why="the database went away")
                bell.ring()
                return
            except ConnectionLost as again:
                lost = again


_current: Listener | None = None


def current_listener() -> Listener:
    """The listener of this process. Raises RuntimeError in a process that is no worker."""
    if _current is None:
        raise RuntimeError("this process is no durableops worker; start one with `manage.py worker`.")
    return _current


class BellWorker(SimpleWorker):
    """RQ's worker, with three differences: it looks for work before it sleeps, it sleeps for one poll at most, and a
    broker that goes away does not end it."""

    def __init__(self, *args: Any, listener: Listener, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.listener = listener
        self.asleep = False

    def _install_signal_handlers(self) -> None:
        """The process's own handlers stay: a stop is decided there."""

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """Announce sleep, look once more, then wait for a bell."""
        while self.listener.stopping.since is None:
            bell.announce_sleep(self.listener.worker_id)
            if self.listener.fill():
                continue
            try:
                self.heartbeat()
                with self._sleeping():
                    found = self.queue_class.dequeue_any(
                        self._ordered_queues,
                        get_conf().poll_seconds,  # type: ignore[arg-type]  # Redis takes fractions of a second
                        connection=self.connection,
                        job_class=self.job_class,
                        serializer=self.serializer,
                        death_penalty_class=self.death_penalty_class,
                    )
            except DequeueTimeout:
                continue
            if found is not None:
                failpoints.reach(failpoints.Point.AFTER_BELL_TAKEN)
                bell.announce_awake(self.listener.worker_id)
                # Before RQ's own bookkeeping of the job, which takes longer than a claim.
                self.listener.fill()
                return found
        return None

    @contextmanager
    def _sleeping(self) -> Iterator[None]:
        self.asleep = True
        try:
            if self.listener.stopping.since is not None:
                raise DequeueTimeout(1, [])
            yield
        finally:
            self.asleep = False


class _Interrupted(StopRequested):
    """A signal arrived while the worker slept."""


def run_listener(listener: Listener) -> None:
    """Work until the process is asked to stop. Raises what made the engine itself fail."""
    global _current
    _current = listener
    workers: list[BellWorker] = []

    def on_stop(signum: int, frame: object) -> None:
        listener.stopping.begin(grace_seconds=get_conf().grace_seconds)
        if workers and workers[-1].asleep:
            raise _Interrupted

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener.wake = lambda: _wake(workers)
    attendant = Attendant(
        in_hand=listener.in_hand, pool=listener.database, wind_up=listener.wind_up, watch=listener.watch
    )
    attendant.start()
    while listener.stopping.since is None:
        try:
            _listen(listener, workers)
        except _Interrupted:
            break
        except RedisError as error:
            logger.warning("the broker is away, polling instead: %s", error)
            _poll(listener)
    while not listener.in_hand.wait_for_end(PLACE_SECONDS):
        pass  # each leaves at its next checkpoint, or at the end of the grace with this process
    attendant.close()
    if not listener.in_hand.held():
        listener.close()
    if listener.failure is not None:
        raise listener.failure


def _wake(workers: list[BellWorker]) -> None:
    """End the sleep of the main thread, which only a signal can; one that is about to sleep looks first."""
    if workers and workers[-1].asleep:
        os.kill(os.getpid(), signal.SIGTERM)


def _listen(listener: Listener, workers: list[BellWorker]) -> None:
    bells = bell.queue()
    worker = BellWorker(
        [bells],
        name=str(listener.worker_id),
        connection=bells.connection,
        serializer=JSONSerializer,
        listener=listener,
        log_job_description=False,
    )
    workers[:] = [worker]
    worker.work(logging_level="ERROR")


def _poll(listener: Listener) -> None:
    """Without a broker: look, then wait one poll."""
    end = monotonic() + get_conf().poll_seconds
    listener.fill()
    while monotonic() < end and listener.stopping.since is None:
        signal.sigtimedwait([], min(0.1, max(0.0, end - monotonic())))

"""The child of a worker: an RQ worker that sleeps on its queue and, when awake, takes runs until none is claimable."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

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
from durableops.engine.claim import claim_next, release_unheld
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.hand import Stopping
from durableops.engine.watch import Watch
from runs.claiming import Claimed

logger = logging.getLogger("durableops.worker")


class Listener:
    """Takes runs for one worker id. Claims and moves them one at a time."""

    def __init__(
        self, *, worker_id: UUID, stopping: Stopping, watch: Watch | None = None, name: str = "worker"
    ) -> None:
        self.worker_id = worker_id
        self.stopping = stopping
        self.watch = watch
        self.database = Database(name=name)
        self.failure: Exception | None = None
        """The engine's own error that ends this process; a step's errors never come here."""

    def drain(self) -> int:
        """Take runs until nothing is claimable. Returns how many were taken. Survives a database that goes away."""
        taken = 0
        claimed: Claimed | None = None
        while claimed is not None or self.stopping.since is None:
            try:
                claimed = claimed or next(iter(claim_next(self.database, worker_id=self.worker_id)), None)
                if claimed is None:
                    return taken
                taken += 1
                claimed = advance(
                    self.database,
                    claimed,
                    worker_id=self.worker_id,
                    stopping=self.stopping,
                    watch=self.watch,
                    claim_next=True,
                )
            except ConnectionLost as lost:
                claimed = None
                self._recover(lost)
            except Exception as error:
                # A run stands under our name and is in nobody's hand, and RQ would log this and go on: nothing would
                # ever take the run from a worker that lives. The process ends; its parent gives the run back.
                self.failure = error
                self.stopping.begin(grace_seconds=0)
                raise
        return taken

    def _recover(self, lost: ConnectionLost) -> None:
        """Come back, and give back what stands under our name without being in hand."""
        while self.stopping.since is None:
            logger.warning("the database went away: %s", str(lost).splitlines()[0])
            try:
                self.database.reconnect()
                release_unheld(self.database, worker_id=self.worker_id, held=[], why="the database went away")
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
            if self.listener.drain():
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
                self.listener.drain()
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
    while listener.stopping.since is None:
        try:
            _listen(listener, workers)
        except _Interrupted:
            break
        except RedisError as error:
            logger.warning("the broker is away, polling instead: %s", error)
            _poll(listener)
    listener.database.close()
    if listener.failure is not None:
        raise listener.failure


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
    listener.drain()
    while monotonic() < end and listener.stopping.since is None:
        signal.sigtimedwait([], min(0.1, max(0.0, end - monotonic())))

"""The parent of a worker: renews the lease, enforces hard step timeouts, replaces a child that died.

It runs no step, so nothing an author writes can keep it from renewing. Each child lives under a worker id of its own;
no connection is open while a child is forked.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import select
import signal
import sys
import time
from dataclasses import replace
from types import FrameType
from uuid import UUID

from psycopg import errors

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell, collector, django_side
from durableops.engine.burial import declare_ended, release_runs
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.forcing import LOCK_PATIENCE
from durableops.engine.hand import Stopping
from durableops.engine.hard_timeouts import take_away
from durableops.engine.isolated import Companion, is_wanted
from durableops.engine.lease import Lease, versions
from durableops.engine.listening import Listener, run_listener
from durableops.engine.plans import record_plans
from durableops.engine.watch import Numbers, Watch, Watched

logger = logging.getLogger("durableops.supervisor")

PR_SET_PDEATHSIG = 1
SHORT_LIFE_SECONDS = 2.0
SHORT_LIFE_PAUSE_SECONDS = 1.0
HELD_SECONDS = 4.0
"""A child that winds up and has shown no sign of life for so long is held by native code."""


class Supervisor:
    """One worker: a parent with a child, restarted as often as needed."""

    def __init__(self, *, concurrency: int | None = None, isolated: bool = False) -> None:
        self.concurrency = get_conf().concurrency if concurrency is None else concurrency
        self.isolated = isolated
        self.stopping = Stopping()
        self.companion: Companion | None = None
        """The worker for isolated runs, where a workflow asks for one."""
        self._impatient = False
        self._database = Database(name="supervisor", durable=False)

    def take_signals(self) -> None:
        """Stop at SIGTERM and SIGINT from now on. Whoever is told that a worker runs may stop it the next moment."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second one does not wait for the grace."""
        self.take_signals()
        if not self.isolated and is_wanted():
            self.companion = Companion(prepare=_die_with_parent)
        collector.spare()
        while self.stopping.since is None:
            began = monotonic()
            self._one_life()
            if self.stopping.since is None and monotonic() - began < SHORT_LIFE_SECONDS:
                time.sleep(SHORT_LIFE_PAUSE_SECONDS)
        if self.companion is not None:
            self.companion.wait()

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._impatient = self.stopping.since is not None
        self.stopping.begin(grace_seconds=get_conf().grace_seconds)
        if self.companion is not None:
            self.companion.ask_to_stop()

    def _one_life(self) -> None:
        """From the fork of a child to its end, under one lease."""
        lease, watch = Lease(self._database), Watch(places=self.concurrency)
        go_reader, go_writer = os.pipe()
        end_reader, end_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_writer)
            os.close(end_reader)
            _be_child(lease, watch, go_reader, concurrency=self.concurrency, isolated=self.isolated)
        os.close(go_reader)
        os.close(end_writer)
        try:
            life = _Life(lease=lease, watch=watch, pid=pid, end_reader=end_reader, supervisor=self)
            if life.register():
                os.write(go_writer, b"go")
                life.keep()
            life.finish()
        finally:
            os.close(go_writer)
            os.close(end_reader)
            self._database.close()

    @property
    def impatient(self) -> bool:
        return self._impatient

    @property
    def database(self) -> Database:
        return self._database


class _Life:
    """The parent's side of one child."""

    def __init__(self, *, lease: Lease, watch: Watch, pid: int, end_reader: int, supervisor: Supervisor) -> None:
        self.lease, self.watch, self.pid = lease, watch, pid
        self._end_reader = end_reader
        self._supervisor = supervisor
        self._database = supervisor.database
        self._status: int | None = None
        self._told_child = False
        self._why = ""
        self._grace_is_over = False
        self._dead_since: float | None = None
        self._winding_up: float | None = None
        self._dealt_with: set[tuple[UUID, int]] = set()
        """Runs that were, or are to be, taken away from steps that did not stop."""
        self._to_be_taken: list[Watched] = []
        """Those of them whose row was locked: taken when the process has ended."""
        self._forced_stops = 0
        """Steps that this parent ended: past their timeout, or with their process."""

    def register(self) -> bool:
        """Write the lease, however long the database is away. False when asked to stop, or the child died meanwhile."""
        while self._supervisor.stopping.since is None and not self._has_ended(0):
            try:
                with self._database.cursor() as cursor:
                    plans = record_plans(cursor)
                self.lease.register(
                    child_pid=self.pid,
                    versions_json=json.dumps(versions()),
                    plans=plans,
                    concurrency=self._supervisor.concurrency,
                    isolated=self._supervisor.isolated,
                )
                return True
            except ConnectionLost as lost:
                logger.warning("waiting for the database: %s", str(lost).splitlines()[0])
                self._has_ended(1.0)
        return False

    def keep(self) -> None:
        """Renew until the child has ended."""
        renewed_at, was_busy = -math.inf, False
        while not self._has_ended(get_conf().heartbeat_seconds):
            stopping = self._supervisor.stopping
            if stopping.since is not None:
                self._stop_child(stopping.since)
            self._look_at_child()
            if stopping.since is None and self._supervisor.companion is not None:
                self._supervisor.companion.keep()
            try:
                draining = stopping.since is not None or self._winding_up is not None
                busy = draining or bool(self.watch.steps())
                if busy != was_busy or monotonic() - renewed_at >= self.lease.beat_seconds(busy=busy):
                    renewed_at, was_busy = monotonic(), busy
                    if not self.lease.renew(draining=draining, numbers=self._numbers(), busy=busy):
                        self._disown()
                self._enforce()
            except ConnectionLost as lost:
                logger.warning("lease not renewed: %s", str(lost).splitlines()[0])

    def finish(self) -> None:
        """Say how it ended, so that its runs go on elsewhere at once."""
        if self._status is None:
            self._kill("it was not needed any more")
            self._has_ended(None)
        why = self._why or _words(self._status)
        if not why.startswith("stopped"):
            self._name_suspects(why)
        try:
            for watched in self._to_be_taken:
                self._take(watched)
            self.lease.renew(draining=True, numbers=self._numbers())
            with self._database.transaction() as cursor:
                # Its child has been waited for: there is no such process any more.
                declare_ended(cursor, self.lease.id, why=why, gone=True)
                released = release_runs(cursor)
            bell.forget_worker(self.lease.id)
            bell.ring(len(released))
        except ConnectionLost as lost:
            logger.warning("the end of worker %s was not recorded, the reaper will find it: %s", self.lease.id, lost)

    def _has_ended(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for the child's end."""
        if self._status is None:
            select.select([self._end_reader], [], [], timeout)
            done, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            if done:
                self._status = status
        return self._status is not None

    def _stop_child(self, since: float) -> None:
        """Ask it to stop, once; end it when the grace is over."""
        if not self._told_child:
            self._told_child = True
            self._why = "stopped by its operator"
            _signal(self.pid, signal.SIGTERM)
        if self._supervisor.impatient or monotonic() - since > get_conf().grace_seconds:
            self._kill_what_is_left("stopped by its operator; the grace was over")

    def _disown(self) -> None:
        """Somebody declared this worker dead. Its child may come to the commit at which it is refused; then it ends."""
        now = monotonic()
        if self._dead_since is None:
            self._dead_since, self._why = now, "somebody declared this worker dead"
            _signal(self.pid, signal.SIGTERM)
        elif now - self._dead_since > get_conf().step_grace_seconds:
            self._kill(self._why)

    def _enforce(self) -> None:
        """Take the run away from each step past its timeout and grace; replace the process that cannot stop it."""
        for watched in self.watch.steps():
            limit = watched.timeout
            if limit is None or monotonic() < watched.entered_at + limit + get_conf().step_grace_seconds:
                continue
            if (watched.run_id, watched.fence) in self._dealt_with:
                continue
            self._dealt_with.add((watched.run_id, watched.fence))
            if not self._take(watched):
                self._to_be_taken.append(watched)
            logger.error(
                "step %r of run %s did not stop at its timeout; replacing its process", watched.step_id, watched.run_id
            )
            self._wind_up(f"step {watched.step_id!r} of run {watched.run_id} did not stop at its timeout")

    def _take(self, watched: Watched) -> bool:
        """Take a run away. False when its row is locked, most likely by the step itself: its process goes first."""
        try:
            with self._database.transaction() as cursor:
                cursor.execute(LOCK_PATIENCE)
                taken = take_away(cursor, watched)
        except errors.LockNotAvailable:
            return False
        self._forced_stops += taken
        return True

    def _numbers(self) -> Numbers:
        """How the child is doing, with what this parent did to it."""
        told = self.watch.numbers()
        return replace(told, forced_stops=told.forced_stops + self._forced_stops)

    def _look_at_child(self) -> None:
        """Follow a child that asked to be replaced; end one that winds up and has not ended within the grace."""
        asked = self.watch.wants_to_be_replaced()
        if asked is not None and self._winding_up is None:
            self._wind_up(asked[1], since=asked[0])
        if self._winding_up is None:
            return
        now, told_at = monotonic(), self.watch.numbers().told_at
        # A child whose interpreter is held by native code hands nothing back: waiting would only cost the others.
        is_held = now - max(told_at, self._winding_up) > HELD_SECONDS
        if now - self._winding_up > get_conf().grace_seconds:
            self._kill_what_is_left(self._why)
        elif is_held or self._others() == 0:
            self._kill(self._why)

    def _others(self) -> int:
        """Steps under way besides those that were taken away from the child."""
        return sum((step.run_id, step.fence) not in self._dealt_with for step in self.watch.steps())

    def _wind_up(self, why: str, *, since: float | None = None) -> None:
        """Let the child hand back what else it holds, then replace it. None of that counts against those runs."""
        if self._winding_up is None:
            self._winding_up = monotonic() if since is None else since
            self._why = self._why or f"stopped: {why}"
            _signal(self.pid, signal.SIGTERM)

    def _name_suspects(self, why: str) -> None:
        """A child that was killed, most often for its memory: say which steps it was in."""
        steps = self.watch.steps()
        megabytes = self.watch.numbers().memory_bytes / 2**20
        named = ", ".join(f"{step.step_id!r} of run {step.run_id}" for step in steps[:10])
        logger.error("%s; it held %.0f MB and was in %s steps: %s", why, megabytes, len(steps), named or "none")

    def _kill(self, why: str) -> None:
        self._why = why
        _signal(self.pid, signal.SIGKILL)

    def _kill_what_is_left(self, why: str) -> None:
        """The grace is over: each step that goes on all the same is one that had to be stopped by force."""
        if not self._grace_is_over:
            self._grace_is_over = True
            self._forced_stops += self._others()
        self._kill(why)


def _be_child(lease: Lease, watch: Watch, go_reader: int, *, concurrency: int, isolated: bool) -> None:
    """The child's whole life; never returns."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.read(go_reader, 2):
            django_side.limit_connections()
            run_listener(
                Listener(
                    worker_id=lease.id, stopping=Stopping(), watch=watch, concurrency=concurrency, isolated=isolated
                )
            )
            status = 0
    except BaseException:
        logger.exception("the worker's child failed")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere the fence alone keeps an orphan harmless."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        logger.debug("process %s had ended already", pid)


def _words(status: int | None) -> str:
    if status is None:
        return "it never started"
    if os.WIFSIGNALED(status):
        return f"its process was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    return "stopped: its process ended" if code == 0 else f"its process ended with status {code}"

"""The parent of a worker: renews the lease, enforces hard step timeouts, replaces a child that died.

It runs no step, so nothing an author writes can keep it from renewing. Each child lives under a worker id of its own;
no connection is open while a child is forked.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import sys
import time
from types import FrameType

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import bell
from durableops.engine.burial import declare_ended, release_runs
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.hand import Stopping
from durableops.engine.hard_timeouts import take_away
from durableops.engine.lease import Lease, versions
from durableops.engine.listening import Listener, run_listener
from durableops.engine.watch import Watch

logger = logging.getLogger("durableops.supervisor")

PR_SET_PDEATHSIG = 1
SHORT_LIFE_SECONDS = 2.0
SHORT_LIFE_PAUSE_SECONDS = 1.0


class Supervisor:
    """One worker: a parent with a child, restarted as often as needed."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self._impatient = False
        self._database = Database(name="supervisor", durable=False)

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second one does not wait for the grace."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        while self.stopping.since is None:
            began = monotonic()
            self._one_life()
            if self.stopping.since is None and monotonic() - began < SHORT_LIFE_SECONDS:
                time.sleep(SHORT_LIFE_PAUSE_SECONDS)

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:
        self._impatient = self.stopping.since is not None
        self.stopping.begin(grace_seconds=get_conf().grace_seconds)

    def _one_life(self) -> None:
        """From the fork of a child to its end, under one lease."""
        lease, watch = Lease(self._database), Watch()
        go_reader, go_writer = os.pipe()
        end_reader, end_writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_writer)
            os.close(end_reader)
            _be_child(lease, watch, go_reader)
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
        self._dead_since: float | None = None

    def register(self) -> bool:
        """Write the lease, however long the database is away. False when asked to stop, or the child died meanwhile."""
        while self._supervisor.stopping.since is None and not self._has_ended(0):
            try:
                self._database.connect()
                self.lease.register(child_pid=self.pid, versions_json=json.dumps(versions()))
                return True
            except ConnectionLost as lost:
                logger.warning("waiting for the database: %s", str(lost).splitlines()[0])
                self._has_ended(1.0)
        return False

    def keep(self) -> None:
        """Renew until the child has ended."""
        beat = get_conf().heartbeat_seconds
        while not self._has_ended(beat):
            stopping = self._supervisor.stopping
            if stopping.since is not None:
                self._stop_child(stopping.since)
            try:
                if not self.lease.renew(draining=stopping.since is not None):
                    self._wind_up()
                self._enforce()
            except ConnectionLost as lost:
                logger.warning("lease not renewed: %s", str(lost).splitlines()[0])

    def finish(self) -> None:
        """Say how it ended, so that its runs go on elsewhere at once."""
        if self._status is None:
            self._kill("it was not needed any more")
            self._has_ended(None)
        why = self._why or _words(self._status)
        try:
            with self._database.transaction() as cursor:
                declare_ended(cursor, self.lease.id, why=why)
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
            self._kill("stopped by its operator; the grace was over")

    def _wind_up(self) -> None:
        """Somebody declared this worker dead. Its child may come to the commit at which it is refused; then it ends."""
        now = monotonic()
        if self._dead_since is None:
            self._dead_since, self._why = now, "somebody declared this worker dead"
            _signal(self.pid, signal.SIGTERM)
        elif now - self._dead_since > get_conf().step_grace_seconds:
            self._kill(self._why)

    def _enforce(self) -> None:
        """Take the run away from a step past its timeout and grace, then kill the process that cannot stop it."""
        watched = self.watch.read()
        if watched is None or monotonic() < watched.entered_at + watched.timeout + get_conf().step_grace_seconds:
            return
        with self._database.transaction() as cursor:
            taken = take_away(cursor, watched)
        if taken:
            logger.error(
                "step %r of run %s did not stop at its timeout; killing its process", watched.step_id, watched.run_id
            )
            self._kill(f"step {watched.step_id!r} did not stop at its timeout")

    def _kill(self, why: str) -> None:
        self._why = why
        _signal(self.pid, signal.SIGKILL)


def _be_child(lease: Lease, watch: Watch, go_reader: int) -> None:
    """The child's whole life; never returns."""
    status = 1
    try:
        _die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.read(go_reader, 2):
            run_listener(Listener(worker_id=lease.id, stopping=Stopping(), watch=watch))
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

"""Real processes of durableops for tests: how they are started, found in the record, signalled and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from runs.models import Run, Worker
from tests.conftest import on_database
from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
COMPANY = ("acc-company-plain", "acc-company-async")
"""Workflows of runs that keep those of the tests company (tests/acceptance/company.py)."""
QUICK = {
    "DURABLEOPS_APPS": "tests.acceptance.scripted",
    "DURABLEOPS_HEARTBEAT_SECONDS": "0.1",
    "DURABLEOPS_LEASE_SECONDS": "1.5",
    "DURABLEOPS_POLL_SECONDS": "0.3",
    "DURABLEOPS_UPKEEP_SECONDS": "0.1",
    "DURABLEOPS_STEP_GRACE_SECONDS": "1",
    "DURABLEOPS_GRACE_SECONDS": "10",
}
"""Everything happens sooner than in production, in the same order."""


def environment() -> dict[str, str]:
    """The environment of processes that work on the test database, as the application's role if there are two."""
    name = connection.settings_dict["NAME"]
    found = {**os.environ, **QUICK, "DJANGO_SETTINGS_MODULE": "durableops.settings", "REDIS_URL": settings.REDIS_URL}
    found.pop("DURABLEOPS_DATABASE_ROLE", None)
    owner = on_database(settings.DATABASE_OWNER_URL or settings.DATABASE_URL, name)
    if settings.DATABASE_APPLICATION_ROLE:
        return {**found, "DATABASE_URL": on_database(settings.DATABASE_URL, name), "DATABASE_OWNER_URL": owner}
    return {**found, "DATABASE_URL": owner, "DATABASE_OWNER_URL": ""}


def patiently[T](check: Callable[[], T], *, timeout: float = PATIENCE_SECONDS, hoping_for: str) -> T:
    """`eventually`, with time for processes to start on a machine that is busy."""
    return eventually(check, timeout=timeout, hoping_for=hoping_for)


class Program:
    """One process of ours. Its words are in `log`."""

    def __init__(
        self, *command: str, environment: Mapping[str, str], log: Path, within: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*within, sys.executable, *command], cwd=CHECKOUT, env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, *, timeout: float = 30.0) -> int:
        """Wait for its end and return its status."""
        return self.process.wait(timeout)

    def close(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    def words(self) -> str:
        return self.log.read_text(errors="replace")


class WorkerProgram(Program):
    """`manage.py worker`: a parent and its child."""

    def lease(self) -> Worker | None:
        """The lease of the child that lives now, once there is one."""
        return Worker.objects.filter(pid=self.pid, ended_at=None).order_by("-number").first()

    def ready(self) -> Worker:
        """Wait until it has registered."""

        def registered() -> Worker | None:
            if self.process.poll() is not None:
                raise RuntimeError(f"the worker ended at once:\n{self.words()}")
            return self.lease()

        found = patiently(registered, hoping_for="a worker that has registered")
        assert found is not None
        return found

    @property
    def child(self) -> int:
        return self.ready().child_pid

    def kill_child(self) -> int:
        """SIGKILL the child, and return what its number was."""
        child = self.child
        os.kill(child, signal.SIGKILL)
        return child

    def kill_both(self) -> None:
        """SIGKILL parent and child at once."""
        child = self.child
        self.send(signal.SIGKILL)
        signal_if_alive(child, signal.SIGKILL)
        self.ended()

    def stop(self) -> int:
        """SIGSTOP both: it stands still, and does not know it. Returns the child's number."""
        child = self.child
        self.send(signal.SIGSTOP)
        os.kill(child, signal.SIGSTOP)
        return child

    def park(self) -> None:
        """SIGSTOP the child alone: the lease lives on, and nothing is claimed."""
        child = self.child
        os.kill(child, signal.SIGSTOP)
        patiently(lambda: is_stopped(child), hoping_for="a child that stands still")
        held = Run.objects.filter(worker__pid=self.pid, state="running").exclude(workflow__in=COMPANY)
        assert not held.exists(), "it was parked with a run in hand"

    def unpark(self) -> None:
        os.kill(self.child, signal.SIGCONT)

    def holds(self, run: Run) -> bool:
        """Whether this worker has the run in hand."""
        return Run.objects.filter(pk=run.pk, state="running", worker__pid=self.pid).exists()


def is_stopped(pid: int) -> bool:
    """Whether a process stands still after SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def signal_if_alive(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def backends(application_name: str) -> list[tuple[Any, ...]]:
    """The database sessions with this name: process id, state, what they wait for."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, state, wait_event_type, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s ORDER BY pid",
            [application_name],
        )
        return list(cursor.fetchall())

"""A set of running processes on one record, and what tests do with them and read from them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from durableops.engine.database import Database
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.upkeep.invariants.report import examine
from runs.models import Checkpoint, IdempotencyRecord, Receipt, Run, RunEvent, Tenant, Worker
from tests.acceptance.processes import PATIENCE_SECONDS, Program, WorkerProgram, environment, patiently

GRACE_SECONDS = 5.0


class Pool:
    """The processes of one module of tests: one upkeep and one worker that every test may use, others on request."""

    def __init__(self, folder: Path, *, skew: float | None = None, **settings: str) -> None:
        self.folder = folder
        self.environment = {**environment(), **settings}
        self._numbers = itertools.count(1)
        self._programs: list[Program] = []
        self._visitors: list[Program] = []
        self.upkeep: Program = self._keep(self._start("upkeep", skew=skew))
        self.worker = self.another_worker(skew=skew)

    def _start(self, command: str, *, skew: float | None = None, **settings: str) -> Program:
        log = self.folder / f"{command}-{next(self._numbers)}.log"
        return Program(*_command(command, skew), environment={**self.environment, **settings}, log=log)

    def _start_worker(self, *, skew: float | None = None, within: Sequence[str] = (), **settings: str) -> WorkerProgram:
        log, environment = self.folder / f"worker-{next(self._numbers)}.log", {**self.environment, **settings}
        return WorkerProgram(*_command("worker", skew), environment=environment, log=log, within=within)

    def another_worker(self, *, skew: float | None = None) -> WorkerProgram:
        """A worker that stays as long as the pool."""
        return self._keep(self._start_worker(skew=skew))

    def _keep[P: Program](self, program: P) -> P:
        self._programs.append(program)
        return program

    def visitor(self, *, failpoints: str = "", within: Sequence[str] = (), **settings: str) -> WorkerProgram:
        """Another worker, for one test. It has registered when this returns. `within`: a command that becomes it."""
        settings |= {"DURABLEOPS_FAILPOINTS": failpoints, "DURABLEOPS_FAILPOINT_RELEASE": str(self.folder / "release")}
        found = self._start_worker(skew=None, within=within, **settings)
        self._visitors.append(found)
        found.ready()
        return found

    def visiting_upkeep(self, *, failpoints: str = "", **settings: str) -> Program:
        """Another upkeep, for one test."""
        settings |= {"DURABLEOPS_FAILPOINTS": failpoints, "DURABLEOPS_FAILPOINT_RELEASE": str(self.folder / "release")}
        found = self._start("upkeep", skew=None, **settings)
        self._visitors.append(found)
        return found

    def visiting_relay(self, *, failpoints: str = "", **settings: str) -> Program:
        """A relay, for one test. It has registered when this returns."""
        settings |= {"DURABLEOPS_FAILPOINTS": failpoints, "DURABLEOPS_FAILPOINT_RELEASE": str(self.folder / "release")}
        found = self._start("relay", skew=None, **settings)
        self._visitors.append(found)
        patiently(lambda: relay_of(found) is not None, hoping_for="a relay that has registered")
        return found

    def send_visitors_home(self) -> None:
        """End what one test has started."""
        while self._visitors:
            self._visitors.pop().close()

    def close(self) -> None:
        self.send_visitors_home()
        for program in self._programs:
            program.close()


def relay_of(program: Program) -> Worker | None:
    """The lease under which a relay lives now."""
    return Worker.objects.filter(pid=program.pid, kind="relay", ended_at=None).order_by("-number").first()


def _command(name: str, skew: float | None) -> list[str]:
    if skew is None:
        return ["manage.py", name]
    return ["-m", "tests.acceptance.scripted.skewed", str(skew), name]


class Told:
    """One run of a test: its row, its folder, and what is on record about it."""

    def __init__(self, run_id: UUID, folder: Path) -> None:
        self.pk = run_id
        self.folder = folder

    @property
    def row(self) -> Run:
        return Run.objects.select_related("plan").get(pk=self.pk)

    def open_gate(self, name: str = "gate") -> None:
        (self.folder / name).touch()

    def lines(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def marks(self, step: str = "", what: str = "") -> list[dict[str, Any]]:
        """What its steps said they did."""
        return [m for m in self.lines("marks") if step in ("", m["step"]) and what in ("", m["what"])]

    def world(self) -> list[dict[str, Any]]:
        """What was sent out."""
        return self.lines("world")

    def until(self, state: str, *, timeout: float = PATIENCE_SECONDS) -> Run:
        """Wait until the run is in a state; a finished run that is not in it fails at once."""

        def there() -> Run | None:
            row = self.row
            if row.state == state:
                return row
            assert not row.is_terminal, f"it is {row.state}: {row.error_message}"
            return None

        found = patiently(there, timeout=timeout, hoping_for=f"a run that is {state}")
        assert found is not None
        return found

    def until_marked(self, step: str, what: str, *, times: int = 1, timeout: float = PATIENCE_SECONDS) -> None:
        patiently(lambda: len(self.marks(step, what)) >= times, timeout=timeout, hoping_for=f"{step} {what}")

    def events(self) -> list[str]:
        return list(RunEvent.objects.filter(run_id=self.pk).order_by("id").values_list("event", flat=True))

    def event(self, name: str) -> RunEvent:
        return RunEvent.objects.filter(run_id=self.pk, event=name).latest("id")

    def receipts(self) -> list[Receipt]:
        return list(Receipt.objects.filter(run_id=self.pk).order_by("number"))

    def causes(self) -> list[str]:
        return [receipt.cause for receipt in self.receipts()]

    def effects(self) -> list[IdempotencyRecord]:
        return list(IdempotencyRecord.objects.filter(run_id=self.pk).order_by("id"))

    def steps(self) -> list[tuple[int, str, str]]:
        """Its checkpoints: number, kind, step."""
        rows = Checkpoint.objects.filter(run_id=self.pk).order_by("seq")
        return [(c.seq, c.kind, c.step_id) for c in rows]


class Desk:
    """Where one test starts its runs."""

    def __init__(self, tenant: Tenant, folder: Path) -> None:
        self.tenant = tenant
        self.folder = folder
        self._numbers = itertools.count(1)
        self._told: list[Told] = []

    def close(self) -> None:
        """Open every gate: what a failed test left must not stand in the way of the next one."""
        for told in self._told:
            told.open_gate()

    def start(
        self, workflow: str, *, shared: bool = False, options: dict[str, Any] | None = None, **given: Any
    ) -> Told:
        """Start a run with a folder of its own (or the test's, if shared)."""
        folder = self.folder if shared else self.folder / f"run-{next(self._numbers)}"
        folder.mkdir(exist_ok=True)
        given = {"folder": str(folder), **given}
        started = start(workflow, given, tenant=self.tenant, actor="tests", **(options or {}))
        self._told.append(Told(started.run_id, folder))
        return self._told[-1]


def make_desk(name: str, folder: Path) -> Desk:
    return Desk(get_or_make_tenant(name), folder)


def assert_invariants() -> None:
    """Every promise that a query can check holds on the record as it is."""
    database = Database(name="acceptance invariants")
    try:
        found = examine(database, grace_seconds=GRACE_SECONDS)
    finally:
        database.close()
    assert [(f.check.name, f.complaint, f.sample[:3]) for f in found.broken] == []


def server_now() -> Any:
    """The database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]

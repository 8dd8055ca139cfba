"""Playing the whole table once, with one kind of crash: the services, the workers, the faults, and the kills."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from durableops import failpoints
from durableops.engine import compensating
from durableops.engine.start import start
from durableops.upkeep.drills.checks import DrillStopped
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.processes import Member
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from examples.demo.desk_client import DeskClient
from examples.desk import ADDRESS_VARIABLE as DESK_VARIABLE
from examples.five_classes.cells import TIMEOUTS, Cell, Moment, Row
from examples.five_classes.people import hurry, settle_what_can_be
from examples.ledger import ADDRESS_VARIABLE as LEDGER_VARIABLE
from examples.ledger_desk.client import LedgerClient
from examples.serving.client import ServiceClient
from runs.models import IdempotencyRecord, Run, Worker
from runs.states import TERMINAL

PLAYED_WITHIN_SECONDS = 240.0
LOOK_EVERY_SECONDS = 0.05
"""Every look asks two services and the database, on the machine whose workers are to get on."""
SILENT_SECONDS = 30.0
"""How long the other side keeps silent; the tools' own timeout is much shorter."""


@dataclass(frozen=True, kw_only=True)
class Crash:
    """What dies at a moment, and what else is in it."""

    name: str
    workers: int
    places: int
    """Runs that a worker holds at once; all of them are interrupted with it."""
    whole: bool
    """Whether parent and child die together, as when their machine goes, or the child alone."""


class Play:
    """One playing of the rows that are wanted."""

    def __init__(self, stage: Stage, crash: Crash, *, wanted: list[Row], moments: list[Moment]) -> None:
        self.crash = crash
        self.runs: dict[Row, UUID] = {}
        self.undoing: dict[Row, UUID] = {}
        """The linked run that undoes what the row's run did."""
        self.struck: set[Cell] = set()
        """Cells that were interrupted."""
        self._wanted = wanted
        self._moments = moments
        self._stage = stage
        self._folder = stage.folder / crash.name
        self._charges = self._folder / "charges"
        self._charges.mkdir(parents=True)
        self._faults: dict[tuple[str, int], Cell] = {}
        """Faults (service and number) that have not struck, and the cell that each is for."""
        self._loaded: dict[str, Cell] = {}
        """Charges that lie there, and the cell that each will kill."""
        self._workers = 0
        self.desk = DeskClient(self._serve("ticket_desk", DESK_VARIABLE))
        self.ledger = LedgerClient(self._serve("ledger_desk", LEDGER_VARIABLE))

    @property
    def cells(self) -> list[Cell]:
        """Everything that is to be interrupted, and was to be undone."""
        done = [cell for row in self._wanted for cell in self._cells_of(row)]
        return done + [cell.undone for cell in done if self._undoes(cell.row)]

    def play(self) -> None:
        """Start everything and see it through to its end. Raises DrillStopped when there is none."""
        self._arm()
        self._stage.cast.environment["DURABLEOPS_CONCURRENCY"] = str(self.crash.places)
        self._stage.cast.environment["DURABLEOPS_UPKEEP_RELAY_CONCURRENCY"] = "0"
        self._stage.start_upkeep()
        workers = [self._start_worker() for _ in range(min(self.crash.workers, len(self._wanted)))]
        if any(row.safety == "outbox" for row in self._wanted):
            nursery = [sys.executable, "-m", "examples.five_classes.nursery", "relay"]
            self._stage.cast.start(f"{self.crash.name}-relay", nursery)
        self._stage.await_upkeep()
        self._stage.await_workers(workers)
        order = list(self._wanted)
        self._stage.random.shuffle(order)
        for row in order:
            self._prepare(self._cells_of(row))
            self.runs[row] = start(row.workflow, {}, tenant=tenant(), actor=ACTOR, labels=LABELS).run_id
        until(
            self._all_over, wanted="the end of all runs", within=PLAYED_WITHIN_SECONDS, every=LOOK_EVERY_SECONDS,
            meanwhile=self._attend,
        )  # fmt: skip

    def _serve(self, service: str, variable: str) -> str:
        command = [sys.executable, "-m", f"examples.{service}", "--data", str(self._folder / service)]
        member = self._stage.cast.start(service, [*command, "--stop-at-end-of-input"], answers=True)
        url: str = member.answer["url"]
        self._stage.cast.environment[variable] = url
        return url

    def _cells_of(self, row: Row) -> list[Cell]:
        return [cell for cell in row.cells if cell.moment in self._moments]

    def _undoes(self, row: Row) -> bool:
        """The short form undoes one of each: what differs between one and many is how they were done."""
        return row.is_undone and (row.way == "one" or not self._stage.short)

    def _arm(self) -> None:
        """Arm every failpoint that will be charged. A relay has nothing but itself: it dies, it does not hold."""
        armed = []
        for cell in self.cells:
            if cell.failpoint is not None:
                point, place, nth = cell.failpoint
                action = "hold" if self.crash.whole and cell.victim == "worker" else "kill"
                armed.append(f"{point}:{place}={action}@{nth}")
        self._stage.cast.environment[failpoints.CHARGES_VARIABLE] = str(self._charges)
        self._stage.arm(",".join(armed))

    def _prepare(self, cells: list[Cell]) -> None:
        """Load what will kill these cells, and ask the other side for what will spoil them."""
        for cell in cells:
            struck = cell.effects[0] if cell.undoing else self._stage.random.choice(cell.effects)
            if cell.failpoint is not None:
                name = ":".join(cell.failpoint[:2])
                (self._charges / name).touch()
                self._loaded[name] = cell
            elif cell.moment is Moment.IN_FLIGHT:
                self._spoil(cell, kind="hold", title=cell.text(struck))
            elif cell.moment.is_timeout:
                when = TIMEOUTS[cell.moment]
                self._spoil(cell, kind="timeout", when=when, title=cell.text(struck), seconds=SILENT_SECONDS)

    def _spoil(self, cell: Cell, **fault: object) -> None:
        service: ServiceClient = self.ledger if cell.row.safety in ("read", "legacy") else self.desk
        self._faults[service.url, service.set_fault(**fault)] = cell

    def _start_worker(self) -> Member:
        self._workers += 1
        return self._stage.cast.manage(f"{self.crash.name}-worker-{self._workers}", "worker")

    def _attend(self) -> None:
        """One look: strike where a cell has come to its moment, do what people do, undo what has ended."""
        for name in [name for name in self._loaded if not (self._charges / name).exists()]:
            cell = self._loaded.pop(name)
            self.struck.add(cell)
            if self.crash.whole and cell.victim == "worker":
                self._kill_worker(cell)
        for service in (self.desk, self.ledger):
            self._look_at_faults(service)
        self._refuse_bad_end()
        settle_what_can_be(self.ledger)
        hurry(list(self.undoing.values()))
        for row in self._wanted:
            if row not in self.undoing and self._undoes(row) and self._has_succeeded(row):
                self._undo(row)

    def _look_at_faults(self, service: ServiceClient) -> None:
        if not any(url == service.url for url, _ in self._faults):
            return
        for fault in service.faults():
            cell = self._faults.get((service.url, fault["id"]))
            if cell is None or not fault["fired"]:
                continue
            if cell.moment is Moment.IN_FLIGHT:
                if not fault["holding"]:
                    continue
                self._kill_worker(cell) if cell.victim == "worker" else self._kill_relay()
                service.release(fault["id"])
            del self._faults[service.url, fault["id"]]
            self.struck.add(cell)

    def _kill_worker(self, cell: Cell) -> None:
        """SIGKILL who holds the cell's run: the child alone, or parent and child, and start another in their place."""
        run_id = self.undoing[cell.row] if cell.undoing else self.runs[cell.row]
        run = Run.objects.select_related("worker").get(pk=run_id)
        if run.worker is None:
            return  # it was killed together with another run
        if not self.crash.whole:
            with suppress(ProcessLookupError):
                os.kill(run.worker.child_pid, signal.SIGKILL)
            return
        self._stage.cast.kill(self._stage.cast.with_pid(run.worker.pid))
        self._start_worker()

    def _kill_relay(self) -> None:
        """SIGKILL the relay; its nursery starts another."""
        for pid in Worker.objects.filter(kind="relay", ended_at=None).values_list("pid", flat=True):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _refuse_bad_end(self) -> None:
        for run in Run.objects.filter(pk__in=[*self.runs.values(), *self.undoing.values()], state__in=TERMINAL):
            if run.state != "succeeded":
                raise DrillStopped(f"run {run.pk} of {run.workflow} is {run.state}: {run.error_message}")

    def _has_succeeded(self, row: Row) -> bool:
        return Run.objects.filter(pk=self.runs[row], state="succeeded").exists()

    def _undo(self, row: Row) -> None:
        """A person has all of it undone."""
        self._prepare([cell.undone for cell in self._cells_of(row)])
        compensating.compensate(self.runs[row], tenant=tenant(), actor=ACTOR, reason="a drill takes everything back")
        linked = Run.objects.get(labels__undoes=str(self.runs[row]))
        self.undoing[row] = linked.pk

    def _all_over(self) -> bool:
        if any(self._undoes(row) and row not in self.undoing for row in self._wanted):
            return False
        every = [*self.runs.values(), *self.undoing.values()]
        if Run.objects.filter(pk__in=every).exclude(state__in=TERMINAL).exists():
            return False
        return not IdempotencyRecord.objects.filter(run__in=every, state="queued").exists()

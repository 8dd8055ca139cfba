"""Playing the whole table once, with one kind of crash: the services, the workers, the faults, and the kills."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from uuid import UUID

from durableops import failpoints
from durableops.engine.start import start
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.processes import Member
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from examples.demo.desk_client import DeskClient
from examples.desk import ADDRESS_VARIABLE as DESK_VARIABLE
from examples.five_classes.cells import KILLED_IN_FLIGHT, TIMEOUTS, Cell, Row
from examples.ledger import ADDRESS_VARIABLE as LEDGER_VARIABLE
from examples.ledger_desk.client import LedgerClient
from runs.models import Run
from runs.states import TERMINAL

PLAYED_WITHIN_SECONDS = 150.0
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

    def __init__(self, stage: Stage, crash: Crash, wanted: list[Row]) -> None:
        self.crash = crash
        self._wanted = wanted
        self.runs: dict[Row, UUID] = {}
        self._stage = stage
        self._folder = stage.folder / crash.name
        self._charges = self._folder / "charges"
        self._charges.mkdir(parents=True)
        self._held: dict[tuple[str, int], Cell] = {}
        """Faults (service and number) that will hold a request, and the cell it will be of."""
        self._armed: dict[str, Cell] = {}
        """Charges that lie there, and the cell that each will kill."""
        self._started = 0
        self.desk = DeskClient(self._serve("ticket_desk", DESK_VARIABLE))
        self.ledger = LedgerClient(self._serve("ledger_desk", LEDGER_VARIABLE))

    def play(self) -> None:
        """Start everything and see it through to the end of the last run. Raises DrillStopped when there is none."""
        self._set_faults()
        self._arm()
        self._stage.start_upkeep()
        workers = [self._start_worker() for _ in range(min(self.crash.workers, len(self._wanted)))]
        self._stage.await_upkeep()
        self._stage.await_workers(workers)
        order = list(self._wanted)
        self._stage.random.shuffle(order)
        for row in order:
            self.runs[row] = start(row.workflow, {}, tenant=tenant(), actor=ACTOR, labels=LABELS).run_id
        until(
            self._all_over,
            wanted="the end of all runs",
            within=PLAYED_WITHIN_SECONDS,
            every=LOOK_EVERY_SECONDS,
            meanwhile=self._strike,
        )

    def _serve(self, service: str, variable: str) -> str:
        command = [sys.executable, "-m", f"examples.{service}", "--data", str(self._folder / service)]
        member = self._stage.cast.start(service, [*command, "--stop-at-end-of-input"], answers=True)
        url: str = member.answer["url"]
        self._stage.cast.environment[variable] = url
        return url

    def _set_faults(self) -> None:
        """One fault for each cell that the other side spoils, on one of its calls."""
        for row in self._wanted:
            service = self.ledger if row.safety in ("read", "legacy") else self.desk
            for cell in row.cells:
                struck = self._stage.random.choice(cell.effects)
                if cell.moment is KILLED_IN_FLIGHT:
                    self._held[service.url, service.set_fault(kind="hold", title=struck)] = cell
                elif cell.moment in TIMEOUTS:
                    when = TIMEOUTS[cell.moment]
                    service.set_fault(kind="timeout", when=when, title=struck, seconds=SILENT_SECONDS)

    def _arm(self) -> None:
        """One charge for each cell that is killed at a failpoint."""
        action, armed = "hold" if self.crash.whole else "kill", []
        for cell in (cell for row in self._wanted for cell in row.cells if cell.failpoint):
            assert cell.failpoint is not None
            name, nth = cell.failpoint
            armed.append(f"{name}={action}@{nth}")
            (self._charges / name).touch()
            self._armed[name] = cell
        environment = self._stage.cast.environment
        environment[failpoints.CHARGES_VARIABLE] = str(self._charges)
        environment["DURABLEOPS_CONCURRENCY"] = str(self.crash.places)
        self._stage.arm(",".join(armed))

    def _start_worker(self) -> Member:
        self._started += 1
        return self._stage.cast.manage(f"{self.crash.name}-worker-{self._started}", "worker")

    def _strike(self) -> None:
        """Kill whoever has come to where the next cell wants it killed."""
        for service in (self.desk, self.ledger):
            for fault in service.faults() if self._held else ():
                if fault["holding"] and (cell := self._held.pop((service.url, fault["id"]), None)):
                    self._kill_holder(cell)
                    service.release(fault["id"])
        if self.crash.whole:
            for name in [name for name in self._armed if not (self._charges / name).exists()]:
                self._kill_holder(self._armed.pop(name))

    def _kill_holder(self, cell: Cell) -> None:
        """SIGKILL the worker that holds the cell's run, parent and child, and start another in its place."""
        run = Run.objects.select_related("worker").get(pk=self.runs[cell.row])
        if run.worker is None:
            return  # it was killed together with another run
        self._stage.cast.kill(self._stage.cast.with_pid(run.worker.pid))
        self._start_worker()

    def _all_over(self) -> bool:
        left = Run.objects.filter(pk__in=self.runs.values()).exclude(state__in=TERMINAL)
        return not left.exists()

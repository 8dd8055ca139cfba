"""Company for a drill: started before its run, gathered in the hands of each worker that is struck, judged afterwards.

A worker with sixteen places holds other people's runs too. They must lose nothing by a strike that is meant for the
drill's own run, and their presence must change nothing for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from durableops.engine.inbound import send_event
from durableops.engine.start import start
from durableops.upkeep.drills import facts
from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from examples.company.workflows import OVER
from examples.demo.account import Account, compare
from examples.demo.desk_client import DeskClient, DeskRequest, DeskTicket
from examples.demo.narrate import problems
from examples.demo.record import records_of, totals
from runs.models import Run, RunEvent

APP = "examples.company"
KINDS = ("company-plain", "company-async")
OF_EACH_KIND = 12
PLACES = 16
BUSY = "busy"
"""The desk's word for a request that it turned away because the same key was still being answered."""
GATHERS_WITHIN_SECONDS = 30.0


@dataclass(kw_only=True)
class Crowd:
    """The company of one drill."""

    name: str
    runs: dict[UUID, str] = field(default_factory=dict)
    """Each run and its kind."""
    struck: list[UUID] = field(default_factory=list)
    """Workers that were struck while they held some of it."""

    def come(self, stage: Stage) -> None:
        """Give every worker that is started from now on sixteen places, and start the company's runs."""
        stage.cast.environment["DURABLEOPS_CONCURRENCY"] = str(PLACES)
        for kind in KINDS * OF_EACH_KIND:
            started = start(kind, {"company": self.name}, tenant=tenant(), actor=ACTOR, labels=LABELS)
            self.runs[started.run_id] = kind

    def gather_around(self, worker_id: UUID) -> None:
        """Wait until this worker, which is about to be struck, has company of every kind in hand."""
        until(
            lambda: set(KINDS) <= set(self._held_by(worker_id)),
            wanted="company of every kind in the hand of the worker that is to be struck",
            within=GATHERS_WITHIN_SECONDS,
        )
        self.struck.append(worker_id)

    def leave(self) -> None:
        """Send everybody home, and wait for the last one."""
        send_event(OVER, tenant=tenant(), actor=ACTOR, correlation=self.name, payload={"company": self.name})
        until(
            lambda: not Run.objects.open().filter(pk__in=self.runs).exists(),
            wanted="the end of the company's runs",
            within=GATHERS_WITHIN_SECONDS,
        )

    def judge(self, checks: Checks, desk: DeskClient) -> dict[str, Any]:
        """Check that nobody lost anything; return the figures of the report."""
        states = Counter(Run.objects.filter(pk__in=self.runs).values_list("state", flat=True))
        checks.equal("company_succeeded", dict(states), {"succeeded": len(self.runs)}, "states of the company's runs")
        losses = [self._lost_with(worker_id) for worker_id in self.struck]
        checks.add(
            "company_was_struck_too",
            losses and all(set(KINDS) <= set(kinds) for kinds in losses),
            f"runs that lost each worker that was struck: {[dict(kinds) for kinds in losses]}",
        )
        errands = sum(totals(run_id)[0]["errands"] for run_id in self.runs)
        accounts = self._accounts(desk.requests(), desk.tickets())
        wrong = [text for account in accounts for text in problems(account)]
        checks.add(
            "company_repeats_are_explained",
            not wrong,
            "; ".join(wrong) or f"{sum(account.repeated_keys for account in accounts)} keys were seen more than once",
        )
        tickets = sum(account.tickets for account in accounts)
        checks.equal("company_has_no_duplicates", tickets, errands, "tickets, of as many errands")
        foreign = [text for run_id in self.runs for text in facts.foreign_writes(run_id)]
        back = sum(facts.cursor_regressions(run_id) for run_id in self.runs)
        checks.add(
            "company_has_one_writer",
            not foreign and not back,
            "; ".join(foreign) or f"{back} regressions of checkpoint numbers and cursors",
        )
        return {
            "runs": len(self.runs),
            "interrupted": sum(sum(kinds.values()) for kinds in losses),
            "errands": errands,
            "tickets": tickets,
            "repeated_keys": sum(account.repeated_keys for account in accounts),
        }

    def _held_by(self, worker_id: UUID) -> list[str]:
        held = Run.objects.filter(pk__in=self.runs, state="running", worker_id=worker_id)
        return list(held.values_list("workflow", flat=True))

    def _lost_with(self, worker_id: UUID) -> Counter[str]:
        lost = RunEvent.objects.filter(run_id__in=self.runs, event="lose_worker", worker_id=worker_id)
        return Counter(self.runs[run_id] for run_id in lost.values_list("run_id", flat=True))

    def _accounts(self, requests: Sequence[DeskRequest], tickets: Sequence[DeskTicket]) -> list[Account]:
        """The desk's log against the record, run by run. Keys of nobody are found in the account of the drill's run."""
        found = []
        for run_id in self.runs:
            records = records_of(run_id)
            keys = {effect.key for effect in records.effects}
            found.append(
                compare(
                    # Turned away, so nothing was done for them; each is a repeat that the desk itself asked for.
                    requests=[request for request in requests if request.key in keys and request.outcome != BUSY],
                    tickets=[ticket for ticket in tickets if ticket.key in keys],
                    records=records,
                )
            )
        return found

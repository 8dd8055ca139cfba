"""What happens in the demo, in order: a doubt, a call that times out, a worker killed in a call, approval, account."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from examples.batch_import.source import Source
from examples.demo import doubt, record
from examples.demo.account import Account, compare
from examples.demo.narrate import Narrator, summary
from examples.demo.options import Options
from examples.demo.stage import Stage, StageError
from examples.demo.targets import Targets, choose_targets

LOOK_EVERY_SECONDS = 0.1
NO_ANSWER_FOR_SECONDS = 30.0
"""How long the desk keeps silent where a call is to time out; the tool's own timeout is much shorter."""
PACE_SECONDS, PACED_REQUESTS = 0.25, 3400
"""For somebody who watches, the desk takes its time: the airports last two minutes instead of five seconds."""


@dataclass(kw_only=True)
class Faults:
    """What was asked of the desk; None where the file has no row to strike."""

    timeouts: list[int] = field(default_factory=list)
    hold: int | None = None


class Story:
    """One import, watched and disturbed."""

    def __init__(self, stage: Stage, options: Options, narrator: Narrator) -> None:
        self.stage, self.options, self.narrator = stage, options, narrator
        self.faults = Faults()
        self.kills = 0
        self._asked: int | None = None

    def play(self, source: Source) -> dict[str, Any]:
        """Run the import to its end and return the report."""
        for left in record.cancel_leftovers():
            self.narrator.tell(f"cancelled run {left}, which an earlier demo left unfinished")
        for number in doubt.clear_leftovers():
            self.narrator.tell(f"gave up on doubt {number}, which an earlier demo left open")
        self.left = self._leave_a_doubt()
        self.faults = self._set_faults(choose_targets(source))
        run_id = self._start(source)
        while not (view := record.look(run_id)).is_over:
            self.narrator.progress(view.done, view.total, view.note)
            self._kill_if_held(run_id, view)
            self._ask_for_approval(view)
            for name in self.stage.troupe.look_after():
                self.narrator.tell(f"a supervisor started {name} again")
            time.sleep(LOOK_EVERY_SECONDS)
        self.narrator.progress(view.done, view.total, view.note)
        self.narrator.tell(f"the run is over: {view.state}" + (f" ({view.error})" if view.error else ""))
        return self._report(run_id, view)

    def _leave_a_doubt(self) -> doubt.Left:
        left = doubt.leave(self.stage.ledger)
        self.narrator.tell(f"run {left.run_id} books a month in the ledger at {self.stage.ledger.url}")
        where = f" at {self.stage.console}doubts/{left.doubt_id}/" if self.stage.console else " in the Inbox"
        self.narrator.tell(f"no answer came for “{left.text}”: nobody knows whether it is there. Settle it{where}")
        return left

    def _start(self, source: Source) -> UUID:
        choices = self.options.choices
        run_id = record.start_import(
            {"source": str(source.path), "required": list(choices.required), "missing": list(choices.missing)}
        )
        self.narrator.tell(
            f"started run {run_id}: import {source.path.name} into the ticket desk at {self.stage.desk.url}"
        )
        if self.stage.console:
            self.narrator.tell(f"watch it at {self.stage.console}runs/{run_id}/")
        return run_id

    def _set_faults(self, targets: Targets) -> Faults:
        desk, faults = self.stage.desk, Faults()
        for title in filter(None, (targets.times_out, targets.is_held)):
            faults.timeouts.append(desk.set_fault(kind="timeout", title=title, seconds=NO_ANSWER_FOR_SECONDS))
        if targets.is_held:
            faults.hold = desk.set_fault(kind="hold", title=targets.is_held, nth=2)
        if not self.options.once:
            desk.set_fault(kind="delay", seconds=PACE_SECONDS, count=PACED_REQUESTS)
        return faults

    def _kill_if_held(self, run_id: UUID, view: record.View) -> None:
        """SIGKILL the worker that holds the run, while the desk holds a request of its whose result is not recorded."""
        if self.faults.hold is None:
            return
        held = self.stage.desk.fault(self.faults.hold)
        if not held["holding"] or view.worker_pid is None:
            return
        key = held["keys"][0]
        if not self.options.once and record.was_interrupted(run_id):
            self._let_go(self.faults.hold)  # somebody killed a worker already: that is the scene
            return
        member = self.stage.troupe.find(view.worker_pid)
        if member is None:
            raise StageError(f"run {run_id} is held by process {view.worker_pid}, which this demo did not start.")
        self.stage.troupe.kill(member)
        self.kills += 1
        found = record.effect_state(run_id, key)
        if found != ("intended", False):
            raise StageError(f"effect {key} is {found} after the kill; wanted an intent without a result.")
        self.narrator.tell(
            f"killed {member.name} (SIGKILL): its intent {key[:12]} was committed, its request was at the desk, "
            "no result was recorded"
        )
        self._let_go(self.faults.hold)

    def _let_go(self, hold: int) -> None:
        self.stage.desk.release(hold)
        self.faults.hold = None

    def _ask_for_approval(self, view: record.View) -> None:
        if view.approval is None or view.approval == self._asked:
            return
        self._asked = view.approval
        self.narrator.tell(f"the run asks: {view.question}")
        if self.options.once:
            record.approve(view.approval, actor=record.ACTOR, reason="given by the script (ONCE=1)")
            self.narrator.tell("the script approved")
        else:
            where = f"in the console ({self.stage.console}) or " if self.stage.console else ""
            self.narrator.plain(f"  approve it {where}with: .venv/bin/python -m examples.demo.approve")

    def _report(self, run_id: UUID, view: record.View) -> dict[str, Any]:
        account = self._account(run_id)
        state, resumes, avoided = record.totals(run_id)
        receipts = record.receipts(run_id)
        rejects = self.options.output / str(run_id) / "rejects.csv"
        self.narrator.plain(summary(state, receipts=receipts, avoided=avoided, account=account, rejects=rejects))
        twice = doubt.booked_twice(self.stage.ledger)
        if twice:
            self.narrator.plain(f"  PROBLEM: {twice} entries are in the ledger twice")
        return {
            "state": view.state,
            "rows": state["rows"],
            "imported": state["imported"],
            "rejected": state["rejected"],
            "tickets": account.tickets,
            "requests": account.requests,
            "repeated_keys": account.repeated_keys,
            "unexplained_repeats": len(account.unexplained_repeats),
            "duplicate_tickets": account.duplicate_tickets,
            "resumes": resumes,
            "effects_avoided": avoided,
            "kills": self.kills,
            "clean": account.is_clean and not twice,
            "booked_twice": twice,
            "doubt": self.left.doubt_id,
            "doubtful_run": str(self.left.run_id),
            "run": str(run_id),
            "seconds": round(self.narrator.seconds, 1),
        }

    def _account(self, run_id: UUID) -> Account:
        desk = self.stage.desk
        desk.forget_faults()
        requests, tickets = desk.requests(), desk.tickets()
        others = record.keys_of_other_runs(run_id, sorted({request.key for request in requests}))
        return compare(requests=requests, tickets=tickets, records=record.records_of(run_id), others=others)

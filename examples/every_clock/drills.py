"""The drill `clocks`: fires every clock with every policy in every phase, and compares event, cause and next state.

Nothing sleeps and no other process is started: the drill is worker and upkeep itself, and moves the clocks by hand.
What kills and real time do to clocks is the business of the other drills and of the acceptance tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from durableops import clock
from durableops.checkpoints.compatibility import Park
from durableops.engine import commands, resuming
from durableops.engine.advance import advance
from durableops.engine.claim import claim_next
from durableops.engine.database import Database
from durableops.engine.hand import Stopping
from durableops.engine.lease import Lease, versions
from durableops.engine.offers import Offer
from durableops.engine.start import start
from durableops.limits.clocks import Clock, Phase
from durableops.upkeep import clocks, timers
from durableops.upkeep.drills.company import ACTOR, LABELS, tenant
from durableops.upkeep.drills.promises import check_invariants
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from examples.every_clock.cells import IN_HAND, Cell, cells
from examples.every_clock.passing import let_all_come
from runs.models import Run, RunEvent, Wait


@drill
class ClocksDrill(Drill):
    """Play every cell, then compare what its event says with what the tables say."""

    name = "clocks"

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def play(self, stage: Stage) -> None:
        with clock.by_hand(), _worker() as (database, offer):
            for cell in cells():
                run_id = _played(cell, database, offer)
                self._rows.append(_compared(cell, run_id))
                _put_away(run_id)

    def judge(self, stage: Stage) -> dict[str, Any]:
        wrong = [row for row in self._rows if row["wrong"]]
        for kind in Clock:
            mine = [row for row in self._rows if row["clock"] == kind]
            told = "; ".join(f"{row['cell']}: {', '.join(row['wrong'])}" for row in wrong if row in mine)
            if mine:
                passed = not any(row["wrong"] for row in mine)
                stage.checks.add(f"{kind}_meets_each_policy_in_each_phase", passed, told or f"{len(mine)} cells")
        stage.checks.equal("every_cell_was_played", len(self._rows), len(cells()))
        check_invariants(stage.checks, newest_runs=len(self._rows))
        return {"cells": self._rows, "fired": len(self._rows), "wrong": len(wrong)}


@contextmanager
def _worker() -> Iterator[tuple[Database, Offer]]:
    database = Database(name="drill clocks")
    lease = Lease(database)
    lease.register(child_pid=0, versions_json=json.dumps(versions()))
    try:
        yield database, Offer(worker_id=lease.id)
    finally:
        lease.end("stopped: its drill is over")
        database.close()


def _played(cell: Cell, database: Database, offer: Offer) -> UUID:
    """Bring a run to where its clock is to come, and let it come."""
    started = start(cell.workflow, {"phase": cell.phase.value}, tenant=tenant(), actor=ACTOR, labels=LABELS)
    run_id = started.run_id
    if cell.phase is Phase.IN_REVIEW:
        [claimed] = _claim(database, offer)
        resuming.park(database, claimed, Park(reason_code="needs_review", reason="the drill wants it to be looked at"))
    elif cell.phase is not Phase.QUEUED:
        _take(database, offer)
    if cell.phase in IN_HAND:
        # What gives a run more time, or asks for it, is upkeep's once nobody has it in hand.
        clocks.fire_deadlines(database)
        return run_id
    if cell.clock is Clock.WAIT_TIMEOUT and cell.phase is Phase.SLEEPING:
        # A sleep has no clock of its own; the table knows what it would mean all the same.
        wait = Wait.objects.get(run_id=run_id)
        Wait.objects.filter(pk=wait.pk).update(
            expires_at=wait.opened_at + timedelta(hours=1), on_timeout=cell.policy, due_at=None
        )
    let_all_come(run_id)
    {
        Clock.RUN_DEADLINE: clocks.fire_deadlines,
        Clock.QUEUE_WAIT: clocks.fire_queue_waits,
        Clock.WAIT_TIMEOUT: timers.expire_waits,
    }[cell.clock](database)
    return run_id


def _claim(database: Database, offer: Offer) -> list[Any]:
    offer.keep(database, at_once=True)
    return claim_next(database, taker=offer.taker(isolated=False, after_tenant=0))


def _take(database: Database, offer: Offer) -> None:
    for claimed in _claim(database, offer):
        advance(database, claimed, worker_id=offer.worker_id, stopping=Stopping())


def _compared(cell: Cell, run_id: UUID) -> dict[str, Any]:
    """What the record says, beside what was wanted."""
    run = Run.objects.get(pk=run_id)
    told = list(RunEvent.objects.filter(run=run, data__has_key="phase").order_by("id"))
    wanted = {
        "event": cell.event, "clock": str(cell.clock), "phase": str(cell.phase), "cause": cell.cause,
        "next_state": cell.next_state,
    }  # fmt: skip
    seen = [{**{name: one.data.get(name) for name in wanted}, "event": one.event} for one in told]
    wrong = [] if seen == [wanted] else [f"told {seen}, wanted {wanted}"]
    if run.state != cell.state:
        wrong.append(f"is {run.state}, wanted {cell.state}: {run.error_message}")
    if missing := [one.event for one in told if not (one.data.get("trigger") and "elapsed_seconds" in one.data)]:
        wrong.append(f"{missing} do not say trigger and elapsed time")
    if cell.policy == "ask" and not run.waits.filter(state="open").exclude(clock="").exists():
        wrong.append("nobody is asked")
    return {"cell": str(cell), "run": str(run_id), **wanted, "state": run.state, "wrong": wrong}


def _put_away(run_id: UUID) -> None:
    """End what the cell left open: the next one begins with an empty queue."""
    run = Run.objects.select_related("tenant").get(pk=run_id)
    if not run.is_terminal:
        commands.cancel(run.pk, tenant=run.tenant, actor=ACTOR, reason="its cell is over", done="keep")
    # It was moved back to before the run was claimed, which no real deadline is.
    Run.objects.filter(pk=run_id).update(deadline_at=None)

"""The drill `retention`: runs of every state and age, each held by something or by nothing, and a cleaner that dies.

The table (see `cells`) says what of each run must be there afterwards. The cleaner is killed at every point it has,
and after each kill what was recorded must be what has gone. When it has come to its end, the runs that were kept go on
in real workers, and those that had ended stay ended.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from durableops.engine.database import Database
from durableops.upkeep.drills import facts
from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.company import tenant
from durableops.upkeep.drills.promises import check_invariants
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from examples.keeping import counts, people
from examples.keeping.afterwards import go_on
from examples.keeping.cells import CLASSES, LAWFUL, Cell, cells
from examples.keeping.killing import Cleaners, scenes
from examples.keeping.making import Maker

MOST_TOLD = 5


@drill
class RetentionDrill(Drill):
    """Make the table, kill the cleaner all over it, compare; then let what was kept go on."""

    name = "retention"

    def __init__(self) -> None:
        self._maker: Maker | None = None
        self._killed: list[str] = []
        self._went: Counter[str] = Counter()
        self._figures: Counter[str] = Counter(
            wrongly_deleted=0, wrongly_kept=0, completed_runs_run_again=0, incomplete_runs_without_a_checkpoint=0
        )

    def play(self, stage: Stage) -> None:
        mine, held = tenant(), people.held_tenant()
        people.set_rules([mine, held])
        self._maker = maker = Maker(
            at=facts.database_time(),
            plans=people.plans(),
            tenant=mine,
            held_tenant=held,
            dead=people.dead_worker(),
        )
        maker.make(list(cells(short=stage.short)))
        looking = Database(name="drill")
        try:
            people.place_holds(maker)
            cleaners = Cleaners(stage=stage, looking=looking)
            self._clean(stage, maker, cleaners)
            self._clean_without_holds(stage.checks, maker, cleaners)
            self._figures["completed_runs_run_again"] += go_on(stage, maker)
        finally:
            looking.close()
            stage.cast.dismiss()
            people.lift_holds(maker)
            people.settle_all([*maker.cells, *maker.others])

    def judge(self, stage: Stage) -> dict[str, Any]:
        made = self._maker
        check_invariants(stage.checks, newest_runs=len(made.cells) + len(made.others) if made else 1)
        told = list(made.cells.values()) if made else []
        sides = sum(len(CLASSES) if cell.is_open else len(cell.sides) for cell in told)
        return {
            "runs": len(told),
            "cells": sides,
            "kills": self._killed,
            "rows": dict(sorted(self._went.items())),
            **self._figures,
            "summary": _summary(len(told), sides, self._killed, self._went),
        }

    def _clean(self, stage: Stage, maker: Maker, cleaners: Cleaners) -> None:
        """Kill cleaners until there is one that is left alone, and compare what is left with the table."""
        checks, ids, tenants = stage.checks, list(maker.cells), maker.tenants
        before, tables, since = counts.count(ids), counts.by_table(tenants), facts.database_time()
        for scene in scenes(stage):
            told = cleaners.die(
                scene, among=[run for run, cell in maker.cells.items() if "decision" not in cell.stays()]
            )
            self._compare(checks, "nothing_wrongly_deleted", counts.wrongly_deleted(
                maker.cells, before, counts.count(ids)), f"{told}, of {len(ids)} runs")  # fmt: skip
            gone = tables - counts.by_table(tenants)
            checks.equal("what_went_is_what_was_recorded", gone, counts.recorded(tenants, since), told)
        cleaners.clean()
        self._killed = cleaners.struck
        told = f"killed {len(cleaners.struck)} times; was to die and did not: {', '.join(cleaners.missed) or 'never'}"
        checks.add("cleaner_was_killed_everywhere", not cleaners.missed, told)
        gone = tables - counts.by_table(tenants)
        checks.equal("what_went_is_what_was_recorded", gone, counts.recorded(tenants, since), "at the end")
        now = counts.count(ids)
        for run in ids:
            self._went.update({name: before[run][name] - now[run][name] for name in CLASSES})
        self._judge(checks, maker.cells, before, now)
        wrong = counts.wrong_files(maker.cells, maker.paths)
        self._compare(checks, "files_go_with_their_rows", wrong, f"of {sum(map(len, maker.paths.values()))} files")
        lost = counts.without_checkpoint([run for run, cell in maker.cells.items() if cell.may_go_on])
        self._figures["incomplete_runs_without_a_checkpoint"] = len(lost)
        checks.equal("incomplete_runs_without_a_checkpoint", len(lost), 0)

    def _clean_without_holds(self, checks: Checks, maker: Maker, cleaners: Cleaners) -> None:
        """Lift the holds: what only they kept goes with the next cleaner."""
        chosen = {run: cell for run, cell in maker.cells.items() if cell.held_by in LAWFUL}
        before = counts.count(chosen)
        people.lift_holds(maker)
        cleaners.clean()
        self._judge(checks, chosen, before, counts.count(chosen), lifted=True)

    def _judge(
        self, checks: Checks, of: dict[UUID, Cell], before: counts.Counts, now: counts.Counts, *, lifted: bool = False
    ) -> None:
        when = f"of {len(of)} runs{', now that no hold stands any more' if lifted else ''}"
        for what, find in (("wrongly_deleted", counts.wrongly_deleted), ("wrongly_kept", counts.wrongly_kept)):
            wrong = find(of, before, now, lifted=lifted)
            self._figures[what] += len(wrong)
            self._compare(checks, f"nothing_{what}", wrong, when)

    def _compare(self, checks: Checks, name: str, wrong: list[str], of: str) -> None:
        more = f"; and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        checks.add(name, not wrong, f"{of}: {'; '.join(wrong[:MOST_TOLD]) + more if wrong else '0'}")


def _summary(runs: int, sides: int, killed: list[str], went: Counter[str]) -> str:
    gone = ", ".join(f"{number:,} {name}" for name, number in sorted(went.items()))
    return f"{runs:,} runs, {sides:,} cells; killed at {', '.join(killed) or 'no point'}; rows that went: {gone}"

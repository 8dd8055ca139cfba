"""The drill `effects`: every class of tool, called alone and together, interrupted at every moment there is.

A run for each row of the table (see `cells`), one step for each cell. What kills a step is a failpoint that strikes
once, or the drill itself while the other side holds the request. The verdict asks the API, as another system would:
what nobody can see there has not been seen.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from durableops.upkeep.drills.promises import check_invariants
from durableops.upkeep.drills.registry import Drill, drill
from durableops.upkeep.drills.stage import Stage
from examples.five_classes.api import Api, open_api
from examples.five_classes.cells import moments, rows
from examples.five_classes.outside import count, forget_notes
from examples.five_classes.play import Crash, Play
from examples.five_classes.verdict import Told, check, row_of_report, summary

ALONE = Crash(name="alone", workers=3, places=1, whole=False)
CROWDED = Crash(name="crowded", workers=2, places=16, whole=False)
MACHINES = Crash(name="machines", workers=2, places=16, whole=True)


ROWS_VARIABLE = "EFFECTS_ROWS"
"""Names of the rows to play, such as `keyed-one`, where not all of them are wanted."""
MOMENTS_VARIABLE = "EFFECTS_MOMENTS"
"""Moments at which they are interrupted, such as `in_flight`, where not all of them are wanted."""


@drill
class EffectsDrill(Drill):
    """Interrupt calls of every class, then compare what was counted outside with what the API tells."""

    name = "effects"

    def __init__(self) -> None:
        self._plays: list[Play] = []
        self._rows: list[dict[str, Any]] = []

    def play(self, stage: Stage) -> None:
        wanted, struck = rows(os.environ.get(ROWS_VARIABLE, "")), moments(os.environ.get(MOMENTS_VARIABLE, ""))
        for crash in (ALONE,) if stage.short else (ALONE, CROWDED, MACHINES):
            play = Play(stage, crash, wanted=wanted, moments=struck)
            self._plays.append(play)
            try:
                play.play()
            finally:
                self._compare(play, stage)
                stage.cast.dismiss()

    def judge(self, stage: Stage) -> dict[str, Any]:
        check(self._rows, stage.checks)
        check_invariants(stage.checks, newest_runs=sum(len(play.runs) + len(play.undoing) for play in self._plays))
        return {
            "cells": self._rows,
            "requests": sum(row["requests"] for row in self._rows),
            "duplicates": sum(problem["what"] == "doubled" for row in self._rows for problem in row["wrong"]),
            "summary": summary(self._rows),
        }

    def _compare(self, play: Play, stage: Stage) -> None:
        """Both sides as they are now, while the services still answer."""
        play.desk.forget_faults()
        play.ledger.forget_faults()
        with open_api(stage) as api:
            told = {row: _tell(api, run_id) for row, run_id in play.runs.items()}
            undone = {row: _tell(api, run_id) for row, run_id in play.undoing.items()}
        counted, alone = count(play.desk, play.ledger), play.crash.places == 1
        for cell in play.cells:
            of_run = (undone if cell.undoing else told).get(cell.row, NOTHING)
            made = row_of_report(cell, of_run, counted, struck=play.struck, precise=alone)
            self._rows.append({"crash": play.crash.name, **made})
        forget_notes()


NOTHING = Told(run={"state": "never started"}, timeline=[], effects=[])


def _tell(api: Api, run_id: UUID) -> Told:
    return Told(run=api.run(run_id), timeline=api.timeline(run_id), effects=api.effects(run_id))

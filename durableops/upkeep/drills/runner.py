"""Playing one drill from beginning to end, and making its report whatever happened."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

from durableops.clock import monotonic
from durableops.upkeep.drills import registry, report
from durableops.upkeep.drills.checks import DrillStopped
from durableops.upkeep.drills.company import alone
from durableops.upkeep.drills.registry import Drill
from durableops.upkeep.drills.stage import Stage, make_stage

logger = logging.getLogger("durableops.drill")


def run_drill(name: str, *, seed: int, short: bool = False) -> dict[str, Any]:
    """Play a drill, store its report and return it. Raises DrillNotFound."""
    found = registry.get(name)()
    began = monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"durableops-drill-{name}-"))
    stage = make_stage(seed=seed, folder=folder, short=short)
    logger.info("drill %s begins with seed %s; logs in %s", name, seed, stage.cast.logs)
    figures = _play_alone(found, stage)
    made = report.make(
        drill=name, seed=seed, seconds=monotonic() - began, checks=stage.checks.as_json(), figures=figures
    )
    if made["passed"]:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        made["logs"] = str(stage.cast.logs)
    report.store(made)
    return made


def _play_alone(found: Drill, stage: Stage) -> dict[str, Any]:
    try:
        with alone():
            try:
                _play(found, stage)
                return found.judge(stage)
            finally:
                stage.cast.dismiss()
    except DrillStopped as stopped:
        stage.checks.add("alone_on_the_database", False, str(stopped))
        return {}


def _play(found: Drill, stage: Stage) -> None:
    """Play it; one that had to stop is judged all the same, for what there is."""
    try:
        found.play(stage)
    except DrillStopped as stopped:
        logger.warning("drill %s stopped: %s", found.name, stopped)
        stage.checks.add("played_to_its_end", False, str(stopped))
    else:
        stage.checks.add("played_to_its_end", True, "every scene was played")

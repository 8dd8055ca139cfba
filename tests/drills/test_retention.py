"""The drill `retention` passes, and fails for the right reason when a promise is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.keeping.cells import cells
from runs.models import DrillReport
from tests.drills.conftest import Outcome

SEED = 20_012
pytestmark = pytest.mark.drill


def test_nothing_that_is_needed_goes_and_nothing_else_stays_however_often_the_cleaner_dies(
    play: Callable[..., Outcome], tmp_path: Path
):
    outcome = play(drill="retention", seed=SEED, DURABLEOPS_FILES=str(tmp_path))

    report = outcome.report
    assert (outcome.failed, outcome.exit_status, report["passed"]) == ([], 0, True), report
    assert (report["wrongly_deleted"], report["wrongly_kept"]) == (0, 0)
    assert (report["completed_runs_run_again"], report["incomplete_runs_without_a_checkpoint"]) == (0, 0)
    assert report["runs"] == len(list(cells(short=True)))
    assert len(report["kills"]) == 5
    assert DrillReport.objects.get().report == report

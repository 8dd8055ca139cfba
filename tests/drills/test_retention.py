"""The drill `retention` passes, and fails for the right reason when a promise is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from examples.keeping.cells import cells
from runs.models import DrillReport
from runs.retention.install import FUNCTIONS
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


@contextmanager
def changed(database_url: str, function: str, was: str, instead: str) -> Iterator[None]:
    """One of the functions in the database that judge and remove, with another text; put right again afterwards."""
    [text] = [text for name, text in FUNCTIONS.items() if name.startswith(f"runs_retention_{function}(")]
    assert was in text
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(text.replace(was, instead))
        try:
            yield
        finally:
            owner.execute(text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "was", "instead", "broken", "said"),
    [
        pytest.param(
            "verdicts", "f.legally_held", "false", "nothing_wrongly_deleted", "hold on the run", id="hold is overlooked"
        ),
        pytest.param(
            "verdicts", "f.unsettled", "false", "nothing_wrongly_deleted", "effect in doubt", id="doubt is overlooked"
        ),
        pytest.param(
            "verdicts", "WHERE q.run_id = r.id AND q.closed_at IS NULL", "WHERE q.run_id = r.id",
            "nothing_wrongly_kept", "review closed", id="closed review holds",
        ),
        pytest.param(
            "step", "GROUP BY p.tenant, p.workflow, p.rule, p.seconds, p.erasure",
            "GROUP BY p.tenant, p.workflow, p.rule, p.seconds, p.erasure HAVING false",
            "what_went_is_what_was_recorded", "wanted Counter()", id="nothing is recorded",
        ),
    ],
)  # fmt: skip
def test_drill_fails_by_name_when_the_database_judges_or_records_wrongly(
    database_url: str, play: Callable[..., Outcome], tmp_path: Path, function: str, was: str, instead: str, broken: str,
    said: str,
):  # fmt: skip
    with changed(database_url, function, was, instead):
        outcome = play(drill="retention", seed=SEED, DURABLEOPS_FILES=str(tmp_path))

    assert (outcome.exit_status, broken in outcome.failed) == (1, True), outcome.failed
    assert said in " ".join(
        check["detail"] for check in outcome.report["checks"] if check["name"] == broken and not check["passed"]
    )


@pytest.mark.long
def test_drill_fails_when_the_cleaner_leaves_files_where_they_are(play: Callable[..., Outcome], tmp_path: Path):
    outcome = play(drill="retention", seed=SEED, without="removal", DURABLEOPS_FILES=str(tmp_path))

    assert (outcome.failed, outcome.exit_status) == (["files_go_with_their_rows"], 1)
    assert "is still there" in outcome.told("files_go_with_their_rows")

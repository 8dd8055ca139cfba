"""The drill `effects` passes, and fails for the right reason when a promise is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durableops.upkeep.drills.registry import BUNDLED_APPS
from examples.five_classes.cells import rows
from runs.models import DrillReport
from tests.drills.conftest import Outcome

SEED = 20_011
pytestmark = pytest.mark.drill


def test_calls_of_every_class_survive_a_kill_at_every_moment(play: Callable[..., Outcome]):
    outcome = play(drill="effects", seed=SEED)

    report = outcome.report
    assert (outcome.failed, outcome.exit_status, report["passed"]) == ([], 0, True), report["summary"]
    assert [row["cell"] for row in report["cells"] if row["wrong"]] == []
    done = [cell for row in rows() for cell in row.cells]
    undone = [cell.undone for cell in done if cell.row.is_undone and cell.row.way == "one"]
    assert [row["cell"] for row in report["cells"]] == [str(cell) for cell in done + undone]
    assert all(row["done"] == row["asked"] for row in report["cells"] if row["class"] != "read")
    assert report["duplicates"] == 0
    [stored] = DrillReport.objects.all()
    assert (stored.drill, stored.passed, stored.seed, stored.report) == ("effects", True, SEED, report)


@pytest.mark.parametrize(
    ("without", "row", "broken", "said"),
    [
        pytest.param(
            "intent",
            "keyed-one",
            "every_repeat_is_explained",
            "'keyed-one in_flight 1' was sent 2 times, of which 1 are explained",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "key",
            "keyed-one",
            "no_duplicate_unseen",
            "'keyed-one in_flight 1' is there 2 times",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "reason",
            "keyed-one",
            "every_repeat_is_explained",
            "was sent 2 times, of which 1 are explained",
            marks=pytest.mark.long,
        ),
        ("doubt", "legacy-one", "no_duplicate_unseen", "'legacy-one in_flight 1' is there 2 times"),
    ],
)
def test_without_a_promise_the_drill_fails_by_its_name(
    play: Callable[..., Outcome], without: str, row: str, broken: str, said: str
):
    apps = ",".join(BUNDLED_APPS)  # named here, the command need not start itself over
    outcome = play(
        drill="effects", seed=SEED, without=without, DURABLEOPS_APPS=apps, EFFECTS_ROWS=row, EFFECTS_MOMENTS="in_flight"
    )

    assert outcome.exit_status == 1
    assert broken in outcome.failed
    assert said in outcome.told(broken)

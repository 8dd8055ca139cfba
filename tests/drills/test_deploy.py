"""The drill `deploy` passes: two deploys over runs in every state lose none, repeat nothing, mistake nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from examples.rolling.fates import SHORT
from runs.models import DrillReport
from tests.drills.conftest import Outcome

pytestmark = pytest.mark.drill


def test_deploys_side_by_side_lose_no_run_and_repeat_nothing(play: Callable[..., Outcome]):
    outcome = play(drill="deploy", seed=20_013)
    report = outcome.report
    told = [outcome.told(name) for name in outcome.failed]
    assert (told, outcome.exit_status, report["passed"]) == ([], 0, True)
    assert report["runs"] == sum(SHORT.values())
    assert all(report[what] for what in ("continued", "migrated", "reviewed"))
    bad = ("lost", "steps_run_twice", "effects_sent_twice", "read_with_wrong_code")
    assert {what: report[what] for what in bad} == dict.fromkeys(bad, 0)
    assert set(report["found_in"]) >= {"waiting", "paused", "in_doubt"}
    assert DrillReport.objects.get().report == report


@pytest.mark.long
def test_without_the_comparison_the_drill_fails_because_runs_did_not_go_on_as_they_were_to(
    play: Callable[..., Outcome],
):
    outcome = play(drill="deploy", seed=20_013, without="comparison")
    assert outcome.exit_status == 1
    assert {"played_to_its_end", "lost"} <= set(outcome.failed)

"""The drill `fairness`: small tenants feel no giant, storm or lost workers; without its cap it takes too much."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.drills.conftest import Outcome

pytestmark = pytest.mark.drill


def test_giant_with_a_backlog_a_storm_and_lost_workers_delays_no_small_tenant(play: Callable[..., Outcome]):  # C080
    outcome = play(drill="fairness", seed=1)
    assert (outcome.failed, outcome.exit_status) == ([], 0), outcome.report["checks"]
    report = outcome.report
    assert 0 < report["most_running_seen"] <= report["cap"]
    assert report["giant_claims"] > report["size"]["storm"]


@pytest.mark.long
def test_without_the_cap_the_drill_fails_because_the_giant_took_more_than_its_places(play: Callable[..., Outcome]):
    outcome = play(drill="fairness", seed=1, without="cap")
    assert outcome.exit_status == 1
    assert {"each_claim_took_a_place_within_the_cap", "no_commit_exceeded_the_cap"} <= set(outcome.failed)

"""The drill `clocks` plays every cell of the tables and passes; a wrong table is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from durableops.limits.clocks import CAUSES, POLICIES
from tests.drills.conftest import Outcome

pytestmark = pytest.mark.drill


def test_every_clock_meets_every_policy_in_every_phase(play: Callable[..., Outcome]):
    outcome = play(drill="clocks", seed=1)
    assert (outcome.failed, outcome.exit_status) == ([], 0), outcome.report["checks"]
    played = [(row["clock"], row["phase"]) for row in outcome.report["cells"]]
    assert len(played) == sum(len(CAUSES[clock]) * len(policies) for clock, policies in POLICIES.items())
    assert set(played) == {(str(clock), str(phase)) for clock in POLICIES for phase in CAUSES[clock]}

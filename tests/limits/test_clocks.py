"""The table of clock × phase: complete, and each firing says everything that is to be said."""

from __future__ import annotations

import json

import pytest

from durableops.limits.clocks import Cause, Clock, Firing, Phase, cause_of, phase_of_wait
from runs.models.wait import WAIT_KINDS

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("clock", Clock)
@pytest.mark.parametrize("phase", Phase)
def test_every_pair_has_a_cause(clock, phase):
    assert cause_of(clock, phase) in set(Cause)


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        (Phase.QUEUED, Cause.OVERLOAD),
        (Phase.COMPUTING, Cause.DESIGN_ERROR),
        (Phase.CALLING, Cause.SLOW_DEPENDENCY),
        (Phase.WAITING_PERSON, Cause.UNRESPONSIVE_USER),
        (Phase.WAITING_SYSTEM, Cause.UNRESPONSIVE_SYSTEM),
        (Phase.IN_DOUBT, Cause.UNRESPONSIVE_USER),
    ],
)
def test_cause_says_whom_to_look_at(phase, cause):
    assert cause_of(Clock.RUN_DEADLINE, phase) is cause


def test_spent_budget_is_its_own_cause():
    assert {cause_of(Clock.BUDGET, phase) for phase in Phase} == {Cause.BUDGET_SPENT}


def test_every_kind_of_wait_is_a_phase():
    assert {phase_of_wait(kind) for kind in WAIT_KINDS} == {
        Phase.WAITING_PERSON, Phase.WAITING_SYSTEM, Phase.SLEEPING,
    }  # fmt: skip


def test_firing_is_plain_json_with_every_fact():
    firing = Firing(
        clock=Clock.STEP_TIMEOUT, limit_seconds=5.0, trigger="attempt 1 was still running", elapsed_seconds=6.12345,
        phase=Phase.COMPUTING, next_state="queued",
    )  # fmt: skip
    assert json.loads(json.dumps(firing.as_data())) == {
        "clock": "step_timeout",
        "limit_seconds": 5.0,
        "trigger": "attempt 1 was still running",
        "elapsed_seconds": 6.123,
        "phase": "computing",
        "cause": "design_error",
        "next_state": "queued",
    }

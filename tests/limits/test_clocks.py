"""The table of clock × phase: complete, and each firing says everything that is to be said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from durableops.limits.clocks import CAUSES, Cause, Clock, Firing, Phase, cause_of, phase_of_wait
from runs.models.wait import WAIT_KINDS

CHECKOUT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.engine


TABLE = """
                queued     computing     calling          waiting_person     waiting_system       in_doubt           in_review          sleeping
run_deadline    overload   design_error  slow_dependency  unresponsive_user  unresponsive_system  unresponsive_user  unresponsive_user  design_error
queue_wait      overload   -             -                -                  -                    -                  -                  -
step_timeout    -          design_error  slow_dependency  -                  -                    -                  -                  -
call_timeout    -          -             slow_dependency  -                  -                    -                  -                  -
wait_timeout    -          -             -                unresponsive_user  unresponsive_system  -                  -                  design_error
budget          -          budget_spent  budget_spent     -                  -                    -                  -                  -
doubt           -          -             -                -                  -                    unresponsive_user  -                  -
approval        -          -             -                unresponsive_user  -                    -                  -                  -
"""  # noqa: E501 - a table
PHASES, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], phase, cause) for row in ROWS for phase, cause in zip(PHASES, row[1:], strict=True)]


def test_every_clock_and_every_phase_stands_in_the_table():
    assert ([row[0] for row in ROWS], PHASES) == (list(Clock), list(Phase))


@pytest.mark.parametrize(("clock", "phase", "cause"), CELLS)
def test_cause_is_what_the_table_says(clock, phase, cause):
    assert CAUSES[Clock(clock)].get(Phase(phase), "-") == cause
    if cause != "-":
        assert cause_of(Clock(clock), Phase(phase)) is Cause(cause)


def test_clock_cannot_fire_where_the_table_says_nothing():
    with pytest.raises(KeyError):
        cause_of(Clock.CALL_TIMEOUT, Phase.QUEUED)


def test_operators_read_the_same_table():
    shown = (CHECKOUT / "docs/operations.md").read_text(encoding="utf-8")
    for clock, causes in CAUSES.items():
        for phase, cause in causes.items():
            assert f"| `{clock}` | {phase.replace('_', ' ')} | `{cause}` |" in shown


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

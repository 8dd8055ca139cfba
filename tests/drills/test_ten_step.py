"""The drill `ten-step` passes, and fails for the right reason when a guard of production is taken out."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from examples.ten_step.workflows import EFFECTS_AVOIDED_BY_WAITS
from runs.models import DrillReport
from tests.drills.conftest import Outcome

pytestmark = pytest.mark.drill
SEED = 20_010


def test_ten_steps_survive_kills_a_stopped_worker_doubles_and_a_timeout(play: Callable[..., Outcome]):
    outcome = play(seed=SEED)

    report = outcome.report
    assert (outcome.failed, outcome.exit_status, report["passed"]) == ([], 0, True)
    assert (report["drill"], report["seed"]) == ("ten-step", SEED)
    assert (report["duplicate_effects"], report["cursor_regressions"], report["approvals_skipped"]) == (0, 0, 0)
    assert report["effects_avoided"] == EFFECTS_AVOIDED_BY_WAITS
    assert report["late_results_rejected"] >= 1
    assert report["resumes"] == 6
    company = report["company"]
    assert company["interrupted"] >= 2 * 4, "each of four strikes took a plain and an async neighbour"
    assert company["tickets"] == company["errands"] > 0
    assert all(f"  {n}. " in report["summary"] for n in range(1, 7))
    assert (
        0 < report["recovery_seconds"]["p50"] <= report["recovery_seconds"]["p95"] <= report["recovery_seconds"]["max"]
    )
    stored = DrillReport.objects.get()
    assert (stored.drill, stored.passed, stored.seed, stored.report) == ("ten-step", True, SEED, report)


@pytest.mark.long
def test_without_the_fence_the_drill_fails_because_a_late_worker_wrote(play: Callable[..., Outcome]):
    outcome = play(seed=SEED, without="fence")

    assert outcome.exit_status == 1
    # Which of its runs the late worker reaches before it notices that its lease is gone is chance.
    assert {"one_writer", "company_has_one_writer"} & set(outcome.failed)


@pytest.mark.long
def test_without_the_intent_the_drill_fails_because_the_desk_knew_a_key_and_we_did_not(play: Callable[..., Outcome]):
    outcome = play(seed=SEED, without="intent")

    assert outcome.exit_status == 1
    assert {"intent_before_call", "every_repeat_is_explained"} <= set(outcome.failed)
    assert "sent more often than our records explain" in outcome.told("every_repeat_is_explained")


@pytest.fixture
def no_unique_slot(database_url: str):
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE runs_effect DROP CONSTRAINT effect_slot_unique")
        yield
        owner.execute("TRUNCATE runs_effect CASCADE")
        owner.execute("ALTER TABLE runs_effect ADD CONSTRAINT effect_slot_unique UNIQUE (slot)")


def test_without_the_unique_slot_the_drill_fails_because_a_second_record_was_accepted(
    no_unique_slot: None, play: Callable[..., Outcome]
):
    outcome = play(seed=SEED, without="slot")

    assert (outcome.failed, outcome.exit_status) == (["slot_is_unique"], 1)

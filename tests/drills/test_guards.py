"""Each guard's check passes on the database as it is migrated, and fails by name when that guard is gone."""

from __future__ import annotations

import pytest
from django.db import connection

from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.guards import GUARDS, check_guards
from runs.models import IdempotencyRecord
from runs.transitions import record_event
from tests.factories import make_run

pytestmark = pytest.mark.django_db

TAKEN_OUT = {
    "slot_is_unique": "ALTER TABLE runs_effect DROP CONSTRAINT effect_slot_unique",
    "checkpoints_are_immutable": "DROP TRIGGER runs_checkpoint_immutable ON runs_checkpoint",
    "history_is_immutable": "DROP TRIGGER runs_event_immutable ON runs_event",
    "fence_never_falls": "DROP TRIGGER run_fence_never_falls ON runs_run",
    "checkpoint_numbers_never_fall": "DROP TRIGGER run_head_never_falls ON runs_run",
}


@pytest.fixture
def run():
    run = make_run(state="succeeded", fence=3, head_seq=2)
    with connection.cursor() as cursor:
        record_event(cursor, run.pk, "succeed")
    return run


def failed(run) -> list[str]:
    checks = Checks()
    check_guards(checks, run.pk)
    assert [check.name for check in checks.made] == list(GUARDS)
    return [check.name for check in checks.made if not check.passed]


def test_every_guard_of_the_database_holds_and_the_attempts_leave_nothing_behind(run):
    assert failed(run) == []
    assert not IdempotencyRecord.objects.exists()


@pytest.mark.parametrize("name", sorted(GUARDS))
def test_a_guard_that_is_gone_is_named(run, name: str):
    with connection.cursor() as cursor:
        cursor.execute(TAKEN_OUT[name])

    assert failed(run) == [name]

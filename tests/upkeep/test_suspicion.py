"""When upkeep looks again: at its pace, or as soon as a suspicion can be confirmed."""

from __future__ import annotations

import psycopg
import pytest

from durableops.engine.database import Database
from durableops.upkeep.reaper import Reaper
from runs.models.worker import LOCK_CLASS
from tests.factories import make_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.engine]


@pytest.fixture
def reaper():
    database = Database(name="test upkeep")
    yield Reaper(database)
    database.close()


def test_a_worker_without_its_lock_is_looked_at_again_when_two_heartbeats_are_over(reaper: Reaper):
    make_worker(heartbeat_seconds=20.0, lease_seconds=100.0)

    reaper.look()

    left = reaper.confirms_in()
    assert left is not None
    assert 35 < left <= 40


def test_workers_that_hold_their_locks_are_looked_at_at_the_usual_pace(reaper: Reaper, database_url: str):
    worker = make_worker()
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", [LOCK_CLASS, worker.number])
        reaper.look()

        assert reaper.confirms_in() is None

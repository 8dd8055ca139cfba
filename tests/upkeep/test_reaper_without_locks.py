"""Behind a transaction pooler a session lock says nothing about a worker: only its counter does (C157)."""

from __future__ import annotations

import pytest

from durableops.conf import override_conf
from durableops.engine.database import Database
from durableops.engine.lease import Lease
from durableops.upkeep.reaper import Reaper
from runs.models import Worker
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_a_worker_without_a_lock_is_judged_by_its_counter_alone_where_locks_mean_nothing():  # C157
    with override_conf(session_locks=False, heartbeat_seconds=0.01, lease_seconds=0.5):
        database, observer = Database(name="worker"), Database(name="observer")
        lease = Lease(database)
        lease.register(child_pid=0, versions_json="{}")
        reaper = Reaper(observer)
        seen_alive: list[bool] = []

        def ended() -> bool:
            reaper.look()
            gone = Worker.objects.get(pk=lease.id).ended_at is not None
            seen_alive.append(not gone)
            return gone

        eventually(ended, hoping_for="the lease to run out")
        why = Worker.objects.get(pk=lease.id).ended_why
        database.close()
        observer.close()
    assert "lease 0.5 s" in why
    assert "session is gone" not in why
    assert any(seen_alive)

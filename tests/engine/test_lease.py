"""A lease: registered once however often it is asked for, renewed often while runs are held and seldom while not."""

from __future__ import annotations

import pytest

from durableops.conf import override_conf
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.lease import Lease, beat_seconds
from runs.models import Worker

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def test_idle_worker_promises_fewer_beats_and_a_busy_one_its_usual_ones(engine):
    lease = engine.worker.lease
    lease.renew(busy=False)
    assert Worker.objects.get(pk=lease.id).heartbeat_seconds == 1.0
    lease.renew(busy=True)
    assert Worker.objects.get(pk=lease.id).heartbeat_seconds == 0.25


@pytest.mark.parametrize(("lease_seconds", "beat"), [(10.0, 1.0), (5.0, 0.5), (2.0, 0.25), (60.0, 1.0)])
def test_idle_beat_leaves_room_in_the_lease(lease_seconds, beat):
    with override_conf(lease_seconds=lease_seconds):
        assert beat_seconds(busy=False) == beat


def test_registration_whose_answer_was_lost_is_made_once_more_and_is_one_worker(transactional_db, monkeypatch):
    database = Database(name="tests")
    lease, lock = Lease(database), Lease._lock
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Lease, "_lock", lambda self: database.fetch("SELECT pg_terminate_backend(pg_backend_pid())"))
            with pytest.raises(ConnectionLost):
                lease.register(child_pid=0, versions_json="{}")
        monkeypatch.setattr(Lease, "_lock", lock)
        lease.register(child_pid=0, versions_json="{}")
        assert lease.renew()
    finally:
        database.close()
    found = Worker.objects.get(pk=lease.id)
    assert (found.counter, found.ended_at) == (1, None)

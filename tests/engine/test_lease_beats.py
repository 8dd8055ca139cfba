"""How often a worker says that it lives: often while it holds runs, seldom while it does not, and observers know."""

from __future__ import annotations

import pytest

from durableops.conf import override_conf
from durableops.engine.lease import beat_seconds
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

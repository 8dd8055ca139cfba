"""A worker that was killed leaves nothing in the broker once its end is known."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from rq import SimpleWorker
from rq.serializers import JSONSerializer

from durableops.engine import bell

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("clean_queue")]


def test_the_broker_forgets_a_worker_that_was_killed_while_it_answered_a_bell():
    bells, worker_id = bell.queue(), uuid4()
    broker: Any = bells.connection
    worker = SimpleWorker([bells], name=str(worker_id), connection=bells.connection, serializer=JSONSerializer)
    worker.register_birth()
    job = bells.enqueue_call(bell.ANSWER)
    worker.set_current_job_id(job.id)
    bell.announce_sleep(worker_id)

    bell.forget_worker(worker_id)

    left = {key.decode() for key in broker.scan_iter(match=f"*{worker_id}*")}
    members = {
        member.decode() for name in ("rq:workers", f"rq:workers:{bells.name}") for member in broker.smembers(name)
    }
    assert left == set()
    assert worker.key not in members
    assert not bells.connection.exists(job.key)
    assert bells.connection.zscore(f"durableops:sleepers:{bells.name}", str(worker_id)) is None

"""The bell: an RQ message that says "there may be work" and nothing else. Sent after commit; may be lost or doubled.

Workers that are about to sleep announce it in Redis and look for work once more, so that a bell is needed only for
workers that are asleep: a backlog of a million runs is a handful of messages. All of it is a hint: without a broker,
or after a flush, workers find work by polling.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any
from uuid import UUID

import django_rq
from redis.exceptions import RedisError
from rq import Queue
from rq.job import Job
from rq.worker import Worker
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from durableops.conf import get_conf

logger = logging.getLogger("durableops.bell")
ANSWER = "durableops.engine.jobs.answer_bell"
MESSAGE_SECONDS = 60
"""A bell nobody took is gone after this; the work it told of is found by polling."""


def queue() -> Queue:
    """The queue the bells go through."""
    return _queue(get_conf().queue_name)


@lru_cache(maxsize=8)
def _queue(name: str) -> Queue:
    # Kept: asked anew, it comes with a new client and a new connection, which take longer than the whole message.
    # The client's pool notices a fork by itself.
    found: Queue = django_rq.get_queue(name)
    return found


def ring(count: int = 1) -> int:
    """Wake up to `count` sleeping workers. Returns how many bells were sent; a broker that is away costs only delay."""
    try:
        bells = queue()
        missing = min(count, _unrung(bells))
        for _ in range(missing):
            bells.enqueue_call(ANSWER, timeout=-1, result_ttl=0, failure_ttl=0, ttl=MESSAGE_SECONDS)
        return max(0, missing)
    except RedisError as error:
        logger.warning("no bell was rung, workers will find the work by polling: %s", error)
        return 0


def announce_sleep(worker_id: UUID) -> None:
    """Say that this worker is about to sleep. Look for work once more after it."""
    bells = queue()
    bells.connection.zadd(_key(bells), {str(worker_id): _now(bells)})


def announce_awake(worker_id: UUID) -> None:
    """Say that this worker needs no bell."""
    bells = queue()
    bells.connection.zrem(_key(bells), str(worker_id))


def forget_worker(worker_id: UUID) -> None:
    """Remove what RQ keeps of a worker that was killed: it cleans up after itself only when it ends by itself."""
    try:
        bells = queue()
        connection, key = bells.connection, f"{Worker.redis_worker_namespace_prefix}{worker_id}"
        bell_in_hand: Any = connection.hget(key, "current_job")
        with connection.pipeline(transaction=False) as pipe:
            pipe.srem(Worker.redis_workers_keys, key)
            pipe.srem(WORKERS_BY_QUEUE_KEY % bells.name, key)
            pipe.zrem(_key(bells), str(worker_id))
            pipe.delete(key)
            if bell_in_hand:
                pipe.delete(Job.key_for(bell_in_hand.decode()))
            pipe.execute()
    except RedisError as error:
        logger.warning("what the broker keeps of worker %s was left there: %s", worker_id, error)


def _unrung(bells: Queue) -> int:
    """Sleeping workers for whom no bell is under way."""
    # A worker that died asleep stays in the set; it announces no more and ages out of the count.
    fresh = _now(bells) - 2 * get_conf().poll_seconds - 1
    connection = bells.connection
    with connection.pipeline(transaction=False) as pipe:
        pipe.zremrangebyscore(_key(bells), "-inf", fresh)
        pipe.zcard(_key(bells))
        pipe.llen(bells.key)
        _, sleepers, waiting = pipe.execute()
    return int(sleepers) - int(waiting)


def _now(bells: Queue) -> float:
    """The broker's clock: those of the workers differ."""
    seconds, microseconds = bells.connection.time()
    return seconds + microseconds / 1e6


def _key(bells: Queue) -> str:
    return f"durableops:sleepers:{bells.name}"

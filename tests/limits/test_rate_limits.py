"""Token buckets: as many as the rate, never a crowd after a flush, never blocked for ever, with Redis and without."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from durableops.limits import rate_limits
from durableops.limits.rate_limits import LONGEST_WAIT_SECONDS, Limiter, Rate


@pytest.fixture
def rate(request, redis_url):
    """A limit of 600 a minute that no other test draws on, and its bucket's key."""
    made = Rate(name=f"test:{request.node.name}", per_minute=600)
    with redis.Redis.from_url(redis_url) as broker:
        broker.delete(rate_limits._key(made))
        yield made
        broker.delete(rate_limits._key(made))


@pytest.fixture
def broker(redis_url):
    with redis.Redis.from_url(redis_url) as found:
        yield found


@pytest.fixture
def limiter():
    return Limiter()


def unreachable() -> redis.Redis:
    """A client of a server that is not there, which asks once, as the limiter's own does."""
    return redis.Redis(port=1, socket_connect_timeout=0.1, retry=Retry(NoBackoff(), 0))


@pytest.fixture
def away(limiter, monkeypatch):
    """A limiter whose Redis does not answer."""
    monkeypatch.setattr(limiter, "_client", unreachable())
    return limiter


def put(broker: redis.Redis, rate: Rate, *, tokens: float, seconds_ago: float) -> None:
    """A bucket as it was left some time ago."""
    seconds, micros = broker.time()
    broker.hset(rate_limits._key(rate), mapping={"tokens": tokens, "at": seconds + micros / 1e6 - seconds_ago})


def test_bucket_that_is_not_there_is_empty(limiter, rate):
    """After a flush nobody gets through at once, and everybody soon."""
    grant = limiter.take([rate])
    assert (grant.granted, grant.limited_by) == (0, rate.name)
    assert 0 < grant.wait_seconds <= 60 / rate.per_minute


def test_bucket_fills_with_time_up_to_its_brim_and_no_further(limiter, rate, broker):
    put(broker, rate, tokens=0, seconds_ago=0.1)
    assert limiter.take([rate], 5).granted == 1
    put(broker, rate, tokens=0, seconds_ago=86_400)
    assert limiter.take([rate], 100).granted == rate.burst == 1
    many = Rate(name=rate.name, per_minute=60_000)
    put(broker, many, tokens=0, seconds_ago=3600)
    assert limiter.take([many], 1000).granted == 100


def test_never_more_than_the_rate_goes_out_in_any_second(limiter, rate, broker):
    put(broker, rate, tokens=0, seconds_ago=3600)
    granted = 0
    for _ in range(12):
        granted += limiter.take([rate], 100).granted
        held = {k.decode(): float(v) for k, v in broker.hgetall(rate_limits._key(rate)).items()}
        # A tenth of a second passes.
        broker.hset(rate_limits._key(rate), mapping={"at": held["at"] - 0.1})
    assert granted <= 12 + 1


def test_two_limits_at_once_grant_what_both_have(limiter, rate, broker, request):
    slow = Rate(name=f"{rate.name}:slow", per_minute=6)
    put(broker, rate, tokens=1, seconds_ago=0)
    broker.delete(rate_limits._key(slow))
    grant = limiter.take([rate, slow])
    assert (grant.granted, grant.limited_by) == (0, slow.name)
    assert 9 < grant.wait_seconds <= 10
    # What the one would have granted was not taken from it.
    assert limiter.take([rate]).granted == 1
    broker.delete(rate_limits._key(slow))


def test_key_without_an_expiry_is_given_one_and_the_tenant_works_again(limiter, rate, broker):  # C083
    """What a crash between two commands would leave behind."""
    put(broker, rate, tokens=-500, seconds_ago=1000)
    assert broker.ttl(rate_limits._key(rate)) == -1
    assert limiter.take([rate]).granted == 1
    assert broker.ttl(rate_limits._key(rate)) > 0


@pytest.mark.parametrize("seconds_ago", [-86_400, 86_400], ids=["backwards", "forwards"])
def test_clock_that_jumps_blocks_nobody_for_longer_than_a_window(limiter, rate, broker, seconds_ago):  # C083
    put(broker, rate, tokens=0, seconds_ago=seconds_ago)
    grant = limiter.take([rate])
    assert grant.granted in (0, 1)
    assert grant.wait_seconds <= 60 / rate.per_minute
    held = float(broker.hget(rate_limits._key(rate), "at") or 0)
    assert abs(held - broker.time()[0]) < 5


def test_rate_of_zero_grants_nothing_and_says_when_to_ask_again(limiter, rate):  # C086
    nothing = Rate(name=rate.name, per_minute=0)
    for _ in range(3):
        grant = limiter.take([nothing])
        assert (grant.granted, grant.wait_seconds) == (0, LONGEST_WAIT_SECONDS)


def test_without_redis_a_process_keeps_to_a_small_share(away, rate, later):
    away.shares = 10
    assert away.take([rate]).granted == 0
    granted = 0
    for _ in range(100):
        later(0.1)
        granted += away.take([rate], 100).granted
    # Ten seconds of 600 a minute are 100; a tenth of it is this process's.
    assert 8 <= granted <= 11


def test_without_redis_nobody_is_blocked_for_ever_and_a_rate_of_zero_stays_zero(away, rate, later):
    away.take([rate])
    wait = away.take([rate]).wait_seconds
    assert 0 < wait <= LONGEST_WAIT_SECONDS
    later(wait + 0.01)
    assert away.take([rate]).granted == 1
    assert away.take([Rate(name="none", per_minute=0)]).granted == 0


def test_redis_is_asked_again_when_it_is_back(limiter, rate, monkeypatch, later, broker):
    good = limiter._connected()
    monkeypatch.setattr(limiter, "_client", unreachable())
    limiter.take([rate])
    monkeypatch.setattr(limiter, "_client", good)
    limiter.take([rate])
    assert not broker.exists(rate_limits._key(rate))
    later(rate_limits.AWAY_SECONDS + 0.1)
    limiter.take([rate])
    assert broker.exists(rate_limits._key(rate))


def test_no_limit_grants_everything(limiter):
    assert limiter.take([], 7).granted == 7

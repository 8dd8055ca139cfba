"""Rate limits: token buckets in Redis, each taken from by one script, and what holds when Redis is away.

A bucket that is not there is empty, so neither a flush nor an expired key lets a crowd through. Its time is Redis's
own, and a clock that jumps fills it to the brim at most. Without Redis each process keeps buckets of its own at a small
share of the rate: never unlimited, and never blocked for ever. A rate of 0 grants nothing.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from durableops.clock import monotonic
from durableops.conf import get_conf

logger = logging.getLogger("durableops.rates")

ANSWERS_WITHIN_SECONDS = 0.5
AWAY_SECONDS = 2.0
"""After an error Redis is left alone this long."""
LONGEST_WAIT_SECONDS = 60.0
"""Nobody is told to come back later than this: a limit may be raised meanwhile."""
BURST_SECONDS = 0.1
"""A bucket holds what comes in this time: in no second much more than a second's share goes out."""
DEFAULT_SHARES = 8
"""How many processes are thought to share a rate without Redis, if nobody says better."""

# All buckets or none: what one grants and another refuses would be lost. A key without an expiry is given one.
_TAKE = """
local wanted, now = tonumber(ARGV[1]), redis.call('TIME')
now = tonumber(now[1]) + tonumber(now[2]) / 1e6
local granted, wait, kept = wanted, 0, {}
for n, key in ipairs(KEYS) do
    local rate, burst = tonumber(ARGV[2 * n]), tonumber(ARGV[2 * n + 1])
    local held = redis.call('HMGET', key, 'tokens', 'at')
    local tokens, at = tonumber(held[1]) or 0, tonumber(held[2]) or now
    tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
    kept[n] = tokens
    granted = math.max(0, math.min(granted, math.floor(tokens + 1e-9)))
    if tokens < 1 then
        if rate <= 0 then wait = math.huge else wait = math.max(wait, (1 - tokens) / rate) end
    end
end
for n, key in ipairs(KEYS) do
    redis.call('HSET', key, 'tokens', tostring(kept[n] - granted), 'at', tostring(now))
    redis.call('EXPIRE', key, 3600)
end
if wait == math.huge then wait = -1 end
return {granted, tostring(wait)}
"""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """One limit: so many a minute of something."""

    name: str
    """What it is of, such as `tool send of tenant 7`: the bucket's name."""
    per_minute: int

    @property
    def per_second(self) -> float:
        return self.per_minute / 60

    @property
    def burst(self) -> float:
        return max(1.0, self.per_second * BURST_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What was given."""

    granted: int
    """How many of those that were asked for."""
    wait_seconds: float = 0.0
    """If none: after this one may be there. At most a minute."""
    limited_by: str = ""
    """If none: the slowest of the limits."""


@dataclass
class _Local:
    """A bucket of this process, used while Redis is away. It starts empty, too."""

    tokens: float = 0.0
    at: float = field(default_factory=monotonic)


class Limiter:
    """Takes from buckets. One for the process; threads may share it."""

    def __init__(self) -> None:
        self.shares = DEFAULT_SHARES
        """How many processes draw on the same rates: whoever knows better says so."""
        self._mutex = threading.Lock()
        self._client: redis.Redis | None = None
        self._away_until = 0.0
        self._local: dict[str, _Local] = {}

    def take(self, rates: Sequence[Rate], wanted: int = 1) -> Grant:
        """Take up to `wanted` from every bucket at once: as many as the fullest of them all has."""
        if not rates or wanted < 1:
            return Grant(granted=wanted)
        slowest = min(rates, key=lambda rate: rate.per_minute)
        granted, wait = self._from_redis(rates, wanted) if monotonic() >= self._away_until else (None, 0.0)
        if granted is None:
            granted, wait = self._from_here(rates, wanted)
        if granted:
            return Grant(granted=granted)
        return Grant(granted=0, wait_seconds=min(wait, LONGEST_WAIT_SECONDS), limited_by=slowest.name)

    def _from_redis(self, rates: Sequence[Rate], wanted: int) -> tuple[int | None, float]:
        arguments: list[float] = [wanted]
        for rate in rates:
            arguments += [rate.per_second, rate.burst]
        try:
            found = self._connected().eval(_TAKE, len(rates), *(_key(rate) for rate in rates), *arguments)
        except RedisError as error:
            logger.warning("the broker is away, rates are kept at this process's own share: %s", error)
            self._away_until = monotonic() + AWAY_SECONDS
            return None, 0.0
        granted, wait = int(found[0]), float(found[1])
        return granted, LONGEST_WAIT_SECONDS if wait < 0 else wait

    def _from_here(self, rates: Sequence[Rate], wanted: int) -> tuple[int, float]:
        with self._mutex:
            granted, wait, now = wanted, 0.0, monotonic()
            for rate in rates:
                share, bucket = rate.per_second / max(1, self.shares), self._local.setdefault(rate.name, _Local())
                bucket.tokens = min(max(1.0, rate.burst / self.shares), bucket.tokens + (now - bucket.at) * share)
                bucket.at = now
                granted = max(0, min(granted, math.floor(bucket.tokens + 1e-9)))
                if bucket.tokens < 1:
                    wait = max(wait, (1 - bucket.tokens) / share if share > 0 else LONGEST_WAIT_SECONDS)
            for rate in rates:
                self._local[rate.name].tokens -= granted
        return granted, wait

    def _connected(self) -> redis.Redis:
        if self._client is None:
            # Its pool notices a fork by itself.
            self._client = redis.Redis.from_url(
                settings.REDIS_URL,
                socket_timeout=ANSWERS_WITHIN_SECONDS,
                socket_connect_timeout=ANSWERS_WITHIN_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
        return self._client


def _key(rate: Rate) -> str:
    # The braces keep all of them on one node of a cluster, as one script demands.
    return f"{{durableops:rates:{get_conf().queue_name}}}:{rate.name}"


limiter = Limiter()
"""The process's own."""

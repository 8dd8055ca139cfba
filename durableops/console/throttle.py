"""Slowing down guesses of passwords: a few wrong ones for a name, and that name waits. Kept in Django's cache."""

from __future__ import annotations

import hashlib

from django.core.cache import cache

FREE_TRIES = 5
WAIT_SECONDS = 60


def seconds_to_wait(name: str) -> int:
    """How long this name has to wait; 0 if it may try."""
    return WAIT_SECONDS if (cache.get(_key(name)) or 0) >= FREE_TRIES else 0


def note_failure(name: str) -> None:
    """Count a wrong password; the count lives as long as the wait."""
    key = _key(name)
    cache.add(key, 0, WAIT_SECONDS)
    try:
        cache.incr(key)
    except ValueError:  # it expired in between
        cache.set(key, 1, WAIT_SECONDS)


def forget(name: str) -> None:
    """A right password clears the count."""
    cache.delete(_key(name))


def _key(name: str) -> str:
    # Hashed: a name may hold anything, and a cache's keys may not.
    return "sign-in:" + hashlib.sha256(name.strip().lower().encode()).hexdigest()

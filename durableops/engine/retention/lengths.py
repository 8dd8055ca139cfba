"""Lengths of time as people write them: `7 days`, `36 h`, `0`, `for ever`, `inherited`; and back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from durableops.errors import InputRefused

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "year": 365 * 86400}
_SHORT = {"s": "second", "min": "minute", "m": "minute", "h": "hour", "d": "day", "w": "week", "y": "year"}
_LENGTH = re.compile(r"(\d{1,12})\s*([a-z]*)")


@dataclass(frozen=True, kw_only=True)
class Length:
    """What a rule says: how it keeps, and for how many seconds if it says a number of them."""

    keeps: str
    seconds: int | None = None


def parse(text: str) -> Length:
    """Read a length. A bare number is days; `0` is zero, not for ever. Raises InputRefused."""
    given = text.strip().lower().replace("_", " ")
    if given in ("for ever", "forever", "keep"):
        return Length(keeps="for_ever")
    if given in ("inherited", "inherit", "default"):
        return Length(keeps="inherited")
    found = _LENGTH.fullmatch(given)
    unit = (found and (found[2].rstrip("s") if len(found[2]) > 1 else found[2])) or ""
    unit = _SHORT.get(unit, unit) or "day"
    if not found or unit not in _UNITS:
        raise InputRefused(
            f"{text[:40]!r} is no length of time; say such as 7 days, 36 h, 0, for ever, or inherited."
        )  # fmt: skip
    return Length(keeps="seconds", seconds=int(found[1]) * _UNITS[unit])


def say(seconds: int | None) -> str:
    """A length in words: the largest unit that fits exactly."""
    if seconds is None:
        return "for ever"
    if seconds == 0:
        return "0"
    for unit in ("day", "hour", "minute", "second"):
        if seconds % _UNITS[unit] == 0:
            number = seconds // _UNITS[unit]
            return f"{number:,} {unit}{'' if number == 1 else 's'}"
    raise AssertionError("every number of seconds is a number of seconds")

"""Finds what makes a value unfit for storage, and where; only asked once something looks wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64
MAX_INT = 2**53

_LEAVES = (str, int, float, bool, type(None))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One reason why a value cannot be stored."""

    path: str
    """JSON pointer to the value; empty for the whole document."""

    reason: str
    """Continues the sentence "... at <path> ..."."""


def find_fault(value: Any, *, max_values: int) -> Fault | None:
    """The first fault in document order, or None if the first `max_values` values have none.

    Never recurses, so no depth can break it; the limit is for small objects that hold each
    other so often that walking them would never end.
    """
    # `above` holds the containers we are inside of: meeting one again is a cycle.
    above: list[int] = []
    waiting: list[tuple[Any, str, int]] = [(value, "", 0)]
    for _turn in range(max_values):
        if not waiting:
            break
        current, path, depth = waiting.pop()
        if type(current) in _LEAVES:
            reason = leaf_fault(current)
        else:
            del above[depth:]
            reason = _container_fault(current, above, depth)
            if reason is None:
                above.append(id(current))
                waiting += _children(current, path, depth + 1)
        if reason is not None:
            return Fault(path=path, reason=reason)
    return None


def leaf_fault(value: object) -> str | None:
    """Why a scalar cannot be stored, or None."""
    if isinstance(value, str):
        return text_fault(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which JSON does not have"
    if isinstance(value, int) and abs(value) > MAX_INT:
        return "is a whole number beyond 2^53, which other readers would round; store it as text"
    return None


def text_fault(text: str) -> str | None:
    """Why a text cannot be stored, or None."""
    if "\0" in text:
        return "holds a NUL character, which PostgreSQL does not store"
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        return "holds half of a surrogate pair, which is not a character"
    return None


def pointer(path: str, step: str | int) -> str:
    """The JSON pointer one level deeper; printable whatever the key holds."""
    text = str(step).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    return f"{path}/{text.replace('~', '~0').replace('/', '~1')}"


def _container_fault(value: Any, above: list[int], depth: int) -> str | None:
    if type(value) not in (dict, list, tuple):
        return f"is a {type_name(value)}, which is not JSON; convert it first"
    if id(value) in above:
        return "contains itself"
    if depth >= MAX_DEPTH:
        return f"is nested deeper than {MAX_DEPTH} levels"
    if type(value) is dict:
        return next((reason for key in value if (reason := _key_fault(key)) is not None), None)
    return None


def _key_fault(key: object) -> str | None:
    if type(key) is not str:
        return f"has a key {key!r} that is a {type_name(key)}; JSON keys are texts"
    reason = text_fault(key)
    return None if reason is None else f"has a key that {reason}"


def _children(value: Any, path: str, depth: int) -> list[tuple[Any, str, int]]:
    pairs = value.items() if type(value) is dict else enumerate(value)
    # Reversed, because the walk takes from the end and the first fault should be named.
    return [(child, pointer(path, step), depth) for step, child in pairs][::-1]


def type_name(value: object) -> str:
    """A type as its author knows it, with the module unless it is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

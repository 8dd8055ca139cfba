"""Compares a value with what came back from JSON, types included; finds what storage would lose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from durableops.checkpoints.faults import pointer, type_name

_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One place where what comes back is not what went in."""

    path: str
    """JSON pointer to the place."""

    reason: str
    """Continues the sentence "... at <path> ..."; names types, never values."""


def find_loss(kept: Any, back: Any, path: str = "") -> Loss | None:
    """The first loss, or None. Stricter than `==`: `1`, `1.0` and `True` are three values."""
    if type(kept) is not type(back):
        return Loss(path=path, reason=f"is a {type_name(kept)} and would come back as {type_name(back)}")
    if type(kept) in _PLAIN:
        return None if kept == back else _changed(path)
    if isinstance(kept, list | tuple):
        if len(kept) != len(back):
            return _changed(path)
        return _first(find_loss(value, back[place], pointer(path, place)) for place, value in enumerate(kept))
    if isinstance(kept, dict):
        if set(map(_typed, kept)) != set(map(_typed, back)):
            return _changed(path)
        return _first(find_loss(value, back[key], pointer(path, str(key))) for key, value in kept.items())
    if isinstance(kept, BaseModel):
        return _first(find_loss(value, getattr(back, name), pointer(path, name)) for name, value in kept)
    return _find_scalar_loss(kept, back, path)


def _find_scalar_loss(kept: Any, back: Any, path: str) -> Loss | None:
    if isinstance(kept, set | frozenset):
        return None if set(map(_typed, kept)) == set(map(_typed, back)) else _changed(path)
    if isinstance(kept, datetime | time) and kept.tzinfo is not None and kept.tzinfo.utcoffset(None) is None:
        # Equal now, but another time once it is moved across a clock change.
        return Loss(path=path, reason=f"has the time zone {kept.tzinfo}, of which only the offset would be kept")
    if kept != back or (isinstance(kept, Decimal) and str(kept) != str(back)):
        return _changed(path)
    return None


def _typed(member: Any) -> tuple[type, Any]:
    return type(member), member


def _changed(path: str) -> Loss:
    return Loss(path=path, reason="would come back with another value")


def _first(losses: Iterable[Loss | None]) -> Loss | None:
    return next((loss for loss in losses if loss is not None), None)

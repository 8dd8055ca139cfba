"""Keyset pages: cursors that name the last row seen, bound to the filters they were made with. No query is here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core import signing
from django.http import HttpRequest
from pydantic import BaseModel

from durableops.checkpoints.codec import hash_hex
from durableops.errors import InputRefused

LARGEST_ID = 2**63 - 1

_SALT = "durableops.api.cursor"
MAX_CURSOR_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class Position:
    """The row after which a page begins."""

    at: datetime
    id: UUID


def fingerprint(filters: object) -> str:
    """What tells one set of filters from another, for cursors to carry."""
    return hash_hex(json.dumps(filters, sort_keys=True, default=str))[:16]


def to_cursor(position: Position, *, filters: str) -> str:
    return sealed([position.at.isoformat(), position.id.hex], filters=filters)


def from_cursor(text: str, *, filters: str) -> Position:
    """Read a cursor. Raises InputRefused for one we did not make, or made for another list."""
    at, run_id = opened(text, filters=filters)
    return Position(at=datetime.fromisoformat(at), id=UUID(run_id))


def sealed(place: list[Any], *, filters: str) -> str:
    """A cursor that names any place in a list with these filters."""
    return signing.dumps([*place, filters], salt=_SALT)


def opened(text: str, *, filters: str) -> list[Any]:
    """The place that a cursor names. Raises InputRefused for one we did not make, or made for another list."""
    try:
        if len(text) > MAX_CURSOR_CHARACTERS:
            raise signing.BadSignature
        *place, made_for = signing.loads(text, salt=_SALT)
    except signing.BadSignature:
        raise _refused("it is not one that was given out here") from None
    if made_for != filters:
        raise _refused("it belongs to a list with other filters")
    return list(place)


def _refused(why: str) -> InputRefused:
    return InputRefused(f"cursor is not accepted: {why}. Begin again without one.", path="cursor", place="query")


def refuse_unknown(request: HttpRequest, known: type[BaseModel], *, what: str = "parameter") -> None:
    """Refuse a parameter that nobody reads: whoever mistypes one is told."""
    if unknown := sorted(set(request.GET) - known.model_fields.keys()):
        name = unknown[0][:80]
        raise InputRefused(
            f"{name!r} is not a {what}; there are: {', '.join(known.model_fields)}.", path=name, place="query"
        )

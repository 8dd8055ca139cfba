"""What an address says of itself: the permission it needs and what the OpenAPI document adds to the schemas."""

from __future__ import annotations

from typing import Any

from durableops.access import Permission
from durableops.api.auth import Needs
from durableops.api.schemas import Problem

REFUSALS: dict[frozenset[int], type[Problem]] = {
    frozenset({400, 401, 403, 404, 405, 409, 411, 413, 415, 429, 500, 503}): Problem,
}
"""What every address may answer instead."""

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 255 bytes without control characters; compared byte by byte, within tenant and address.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_REPLAYED = {"Idempotent-Replayed": {"description": "`true`: an earlier request did it.", "schema": {"type": "string"}}}


def asks(
    permission: Permission, *, key: bool = False, accepted: bool = False, content: bool = False, brings: bool = False
) -> dict[str, Any]:  # fmt: skip
    """The options of an address that asks for `permission`: one place for the rule and for what is told about it.

    `key`: it takes an Idempotency-Key. `accepted`: it may answer before it is done. `content`: it answers with bytes.
    `brings`: its body is bytes.
    """
    extra: dict[str, Any] = {"security": [{"token": [permission.value]}]}
    if key:
        extra["parameters"] = [dict(_KEY)]
        extra["responses"] = {
            200: {"description": "Done before, by the same key", "headers": _REPLAYED},
            201: {"description": "Done now"},
        }
    if accepted:
        extra["responses"] = {202: {"description": "Asked for; the run's holder still has to act on it"}}
    binary = {"schema": {"type": "string", "format": "binary"}}
    if brings:
        extra["requestBody"] = {"required": True, "content": {"application/octet-stream": binary}}
    if content:
        extra["responses"] = {200: {"description": "The bytes of the file", "content": {"*/*": binary}}}
    return {"auth": Needs(permission), "openapi_extra": extra}

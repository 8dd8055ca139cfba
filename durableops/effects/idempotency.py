"""Slots and keys of effects: pure functions of what the author named, never of time, chance or position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durableops.authoring.definitions import ToolDefinition
from durableops.checkpoints.codec import canonical, check_key
from durableops.masking import MASK, mask

KEY_CHARACTERS = 48
"""Length of a downstream key: 24 bytes of SHA-256 in hexadecimal."""
SUMMARY_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One call as the author asked for it, with its identity."""

    tool: ToolDefinition
    request: dict[str, Any]
    resource: str
    author_key: str
    slot: str
    """Hexadecimal SHA-256."""
    key: str
    request_hash: str


def prepare(
    tool: ToolDefinition,
    request: dict[str, Any],
    *,
    run_id: UUID,
    tenant_id: int,
    step_id: str,
    resource: str,
    author_key: str,
    max_bytes: int,
) -> Prepared:
    """Work out slot, request hash and downstream key.

    The slot is (run, step, tool, resource, key); with scope "tenant" it drops run and step: the same thing, whoever
    asks. A `read` may go without a resource, then its request stands in. Raises PayloadRefused for a request that is
    not JSON, DefinitionError for one the tool cannot take, InputRefused for a key or resource that cannot be one.
    """
    tool.check_request(request)
    named = tool.resource_for(request, resource=resource)
    if named:
        check_key(named, what=f"resource of {tool.name}")
    if author_key:
        check_key(author_key, what=f"key of {tool.name}")
    text = canonical(request, what=f"request of {tool.name}", max_bytes=max_bytes)
    request_hash = hashlib.sha256(text.encode()).hexdigest()
    place = ["tenant", tenant_id] if tool.scope == "tenant" else ["run", str(run_id), step_id]
    slot = _slot(place, tool.name, named, request_hash, author_key)
    key = hashlib.sha256(f"{slot}:{request_hash}".encode()).hexdigest()[:KEY_CHARACTERS]
    return Prepared(
        tool=tool, request=request, resource=named, author_key=author_key, slot=slot, key=key, request_hash=request_hash
    )


def slot_of(
    *, run_id: UUID, step_id: str, tool: str, resource: str, request_hash: str, author_key: str
) -> str:  # fmt: skip
    """The slot of an effect of one run that is on record, under the names its step and tool have now."""
    return _slot(["run", str(run_id), step_id], tool, resource, request_hash, author_key)


def _slot(place: list[Any], tool: str, resource: str, request_hash: str, author_key: str) -> str:
    identity = [*place, tool, resource or f"request:{request_hash}", author_key]
    return hashlib.sha256(json.dumps(identity, ensure_ascii=False).encode()).hexdigest()


def summarize(request: dict[str, Any], *, secret: Collection[str] = ()) -> dict[str, Any]:
    """What people see of a request: its scalars, shortened, and the size of the rest; what looks secret is masked."""
    found: dict[str, Any] = {}
    for name, value in request.items():
        if name in secret:
            found[name] = MASK
        elif isinstance(value, str):
            found[name] = value if len(value) <= SUMMARY_CHARACTERS else value[:SUMMARY_CHARACTERS] + "…"
        elif value is None or isinstance(value, bool | int | float):
            found[name] = value
        else:
            found[name] = f"({len(value)} entries)" if isinstance(value, dict | list | tuple) else "(value)"
    masked: dict[str, Any] = mask(found)
    return masked

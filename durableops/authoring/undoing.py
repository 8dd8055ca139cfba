"""How an effect is undone, as a tool declares it: by another tool, or by a person who follows instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from durableops.errors import DefinitionError

if TYPE_CHECKING:
    from durableops.authoring.definitions import ToolDefinition

GIVEN = frozenset({"downstream_id", "result"})
"""What a compensating tool gets of the effect, where its function has arguments of these names."""
MAX_INSTRUCTIONS = 4000


@dataclass(frozen=True, kw_only=True)
class DoneEffect:
    """An effect that is to be undone, as `undo_request` sees it."""

    tool: str
    resource: str
    author_key: str
    key: str
    """What the other side deduplicated on."""
    downstream_id: str
    """The other side's id of what was made; "" when none is known."""
    result: Any
    """What the call returned; None when a person, and no answer, said that it happened."""
    request: Mapping[str, Any]
    """The summary of the request: its scalars, shortened, with what looks secret masked."""


def request_to_undo(tool: ToolDefinition, effect: DoneEffect) -> dict[str, Any]:
    """The request with which `tool.compensate` is called. Raises whatever the author's `undo_request` raises."""
    assert tool.compensate is not None
    if tool.undo_request is not None:
        return dict(tool.undo_request(effect))
    wanted = GIVEN if tool.compensate.accepted is None else GIVEN & tool.compensate.accepted
    return {name: getattr(effect, name) for name in sorted(wanted)}


def check_compensation(tool: ToolDefinition) -> None:
    """Raise DefinitionError unless what the tool says about undoing it can be done."""
    undo, what = tool.compensate, f"{tool.source}: tool {tool.name!r}"
    if not isinstance(tool.instructions, str) or len(tool.instructions) > MAX_INSTRUCTIONS:
        raise DefinitionError(f"{what} has instructions that are no text of at most {MAX_INSTRUCTIONS} characters.")
    if undo is None:
        if tool.undo_request is not None:
            raise DefinitionError(f"{what} has undo_request without compensate; name the tool that undoes it.")
        if tool.four_eyes and not tool.instructions:
            raise DefinitionError(f"{what} asks for four eyes and says nowhere how it is undone.")
        return
    if type(undo) is not type(tool):
        raise DefinitionError(
            f"{what} has compensate={undo!r}; give a function decorated with @tool, so that its calls are effects "
            "too, and undo_request=... where its request is made of more than downstream_id and result."
        )
    if undo is tool or undo.safety == "read":
        raise DefinitionError(f"{what} has compensate={undo.name!r}, which undoes nothing; give a tool that acts.")
    if tool.safety == "read":
        raise DefinitionError(f"{what} only reads; there is nothing to compensate.")
    missing = undo.required - GIVEN
    if missing and tool.undo_request is None:
        raise DefinitionError(
            f"{what} is undone by {undo.name!r}, which also needs {', '.join(sorted(missing))}; make its request with "
            "undo_request=lambda effect: {...}."
        )

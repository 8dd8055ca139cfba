"""How effects are undone, as this process's tools declare it. What is owed for which effect is `owing`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from durableops.authoring import registry
from durableops.authoring.definitions import ToolDefinition


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the effects of one tool are undone."""

    of: str
    """The tool whose effects they are."""
    how: str
    """By a `tool`, or by a `person`."""
    tool: str
    instructions: str
    four_eyes: bool


def way_of(tool: ToolDefinition) -> Way | None:
    """How this tool's effects are undone; None when its author did not say."""
    if not tool.can_be_undone:
        return None
    undo = tool.compensate
    return Way(
        of=tool.name,
        how="person" if undo is None else "tool",
        tool="" if undo is None else undo.name,
        instructions=tool.instructions,
        four_eyes=tool.four_eyes,
    )


def ways() -> list[Way]:
    """Of every tool that this process knows and that can be undone."""
    return [way for tool in registry.tools() if (way := way_of(tool)) is not None]


def unknown(name: str) -> bool:
    """Whether no code here has this tool: removed or renamed since, it cannot say whether it is to be undone."""
    return registry.tool(name) is None


def known_or_by_hand(name: str) -> Way:
    """The way of a tool; of one that says nothing, or is not known here, a person's."""
    tool = registry.tool(name)
    way = None if tool is None else way_of(tool)
    return way or Way(
        of=name,
        how="person",
        tool="",
        instructions=f"Nothing says how {name} is undone. Undo it where it was done, and note what proves it.",
        four_eyes=False,
    )


def as_rows(found: Iterable[Way]) -> str:
    """Ways as JSON for `jsonb_to_recordset`."""
    return json.dumps([asdict(way) for way in found])


COLUMNS = "of text, how text, tool text, instructions text, four_eyes boolean"
"""What `as_rows` holds, as a column definition list."""

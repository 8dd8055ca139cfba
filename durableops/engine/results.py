"""Results of tools as they are stored: JSON text, with the fields that their tool declares secret encrypted."""

from __future__ import annotations

from typing import Any

from durableops.authoring.definitions import ToolDefinition
from durableops.checkpoints import codec, secrets


def stored(tool: ToolDefinition, text: str) -> str:
    """The text that is recorded for a result."""
    return secrets.seal_fields(text, tool.secret)


def read(tool: ToolDefinition, text: str) -> Any:
    """The value of a recorded result. Raises CompatibilityError when it cannot be read."""
    what = f"result of {tool.name}"
    return codec.loads(secrets.open_fields(text, tool.secret, what=what), what=what)

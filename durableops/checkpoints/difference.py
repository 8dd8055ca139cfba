"""One difference between what was recorded and what the code says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

DifferenceKind = Literal[
    "workflow", "version", "schema_version", "schema", "field_added", "field_removed", "field_type", "plan",
    "step_added", "step_removed", "step_renamed", "step_moved", "step_version", "tool_added", "tool_removed",
    "tool_safety", "position", "wait_gone",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as it was recorded."""

    kind: DifferenceKind
    subject: str
    """What differs: a step's id, `step/tool`, `step/event`, a field's path, or the workflow's name."""

    recorded: str
    present: str

    def as_json(self) -> dict[str, str]:
        """Plain JSON, for events and pages."""
        return asdict(self)

    def __str__(self) -> str:
        kind = self.kind.replace("_", " ")
        return f"{kind} {self.subject}: {self.recorded or '-'} became {self.present or '-'}"

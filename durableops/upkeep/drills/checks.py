"""The list of a drill's checks: each has the name of a promise, whether it held, and what was seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


class DrillStopped(Exception):
    """The drill cannot go on as told; the message says what was wanted and what was seen instead."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One promise and what became of it."""

    name: str
    passed: bool
    detail: str


@dataclass(kw_only=True)
class Checks:
    """Checks in the order in which they were made. A name that is checked again must hold every time."""

    made: list[Check] = field(default_factory=list)

    def add(self, name: str, passed: object, detail: str) -> bool:
        """Note a check. Returns whether it passed."""
        self.made.append(Check(name=name, passed=bool(passed), detail=detail))
        return bool(passed)

    def equal(self, name: str, seen: object, wanted: object, detail: str = "") -> bool:
        """Note whether what was seen is what was wanted."""
        told = f"{seen!r}" if seen == wanted else f"{seen!r}, wanted {wanted!r}"
        return self.add(name, seen == wanted, f"{detail}: {told}" if detail else told)

    def as_json(self) -> list[dict[str, Any]]:
        """What the report shows."""
        return [asdict(check) for check in self.made]

"""What a benchmark says: figures with units and targets met or missed. How it is shown lives in `table`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number. None when this machine could not be asked, with `note` saying why."""

    value: float | None
    unit: str
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"value": self.value, "unit": self.unit, **({"note": self.note} if self.note else {})}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A number to reach. A missed one is shown, not hidden."""

    name: str
    want: str
    got: float | None
    met: bool

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "want": self.want, "got": self.got, "met": self.met}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One benchmark's answer."""

    bench: str
    seconds: float
    figures: dict[str, Figure]
    targets: list[Target] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "seconds": round(self.seconds, 3),
            "figures": {name: figure.as_json() for name, figure in self.figures.items()},
            "targets": [target.as_json() for target in self.targets],
        }


def at_most(name: str, limit: float, figure: Figure) -> Target:
    """The figure may not be larger than `limit`; one that could not be measured counts as missed."""
    met = figure.value is not None and figure.value <= limit
    return Target(name=name, want=f"at most {limit:g} {figure.unit}", got=figure.value, met=met)


def at_least(name: str, limit: float, figure: Figure) -> Target:
    """The figure may not be smaller than `limit`; one that could not be measured counts as missed."""
    met = figure.value is not None and figure.value >= limit
    return Target(name=name, want=f"at least {limit:g} {figure.unit}", got=figure.value, met=met)


def quantile(values: Sequence[float], part: float) -> float:
    """The nearest-rank quantile: one of the values, never something between two."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def spread(values: Sequence[float], *, unit: str, digits: int = 3) -> dict[str, Figure]:
    """p50, p95 and max of what was seen."""
    if not values:
        return {name: Figure(value=None, unit=unit, note="nothing was seen") for name in ("p50", "p95", "max")}
    seen = {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95), "max": max(values)}
    return {name: Figure(value=round(value, digits), unit=unit) for name, value in seen.items()}

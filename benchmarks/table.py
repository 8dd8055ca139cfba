"""Results as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def of_result(found: dict[str, Any]) -> str:
    """One benchmark: its figures, then what was wanted and reached."""
    rows = [
        [name, _shown(figure["value"]), figure["unit"], figure.get("note", "")]
        for name, figure in found["figures"].items()
    ]
    lines = [f"{found['bench']}: {found['seconds']:.1f} s", *columns(rows)]
    lines += [
        f"{'met   ' if target['met'] else 'MISSED'}  {target['name']}:"
        f" want {target['want']}, got {_shown(target['got'])}"
        for target in found["targets"]
    ]
    return "\n".join(lines)


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines whose columns stand below each other."""
    given = [list(row) for row in rows]
    widths = [max(len(row[place]) for row in given) for place in range(len(given[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in given]


def _shown(value: float | None) -> str:
    return (
        "–" if value is None else f"{value:,g}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")
    )

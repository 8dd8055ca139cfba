"""What of one run is kept: each class, how much there is of it, until when it stays, and what holds it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from durableops.engine.retention.lengths import say
from runs.models import Run
from runs.retention.classes import CLASSES, in_words

_OF_RUN = """
SELECT v.data_class, CASE WHEN isfinite(v.due_at) THEN v.due_at END, CASE WHEN isfinite(v.free_at) THEN v.free_at END,
    v.seconds, v.rule, v.held, v.cleaned, isfinite(v.due_at),
    isfinite(v.free_at), s.cleaned ->> v.data_class, c.rows, c.bytes
FROM runs_retention_verdicts(ARRAY[%(run)s::uuid], now()) v
LEFT JOIN runs_retention_counts(ARRAY[%(run)s::uuid], %(all)s::jsonb) c ON c.data_class = v.data_class
LEFT JOIN runs_summary s ON s.run_id = v.run_id"""
OF_ITS_DATA = "class:"
"""How a holder begins that is other data of the same run."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What becomes of one class of one run."""

    data_class: str
    rows: int
    bytes: int
    """As it is stored, its files included."""
    seconds: int | None
    """How long it is kept; None is for ever."""
    rule: int
    """Number of the rule that says so; 0 is the default."""
    due_at: datetime | None
    """When it has been kept that long; None while the run is open, or never."""
    goes_at: datetime | None
    """When it goes; None while nobody can say, or never."""
    gone_at: datetime | None
    held: list[str]
    """What holds it, or will once it is due."""
    never: bool

    @property
    def length(self) -> str:
        return say(self.seconds)

    @property
    def why(self) -> list[str]:
        """What holds it, in words; not that the run's row stays with its data."""
        return [in_words(holder) for holder in self.held if not holder.startswith(OF_ITS_DATA)]


def of_run(run: Run) -> list[Kept]:
    """What retention does with each class of a run, and when, in the order in which they go."""
    everything = [{"run": str(run.pk), "data_class": name, "erased": False} for name in CLASSES]
    with connection.cursor() as cursor:
        cursor.execute(_OF_RUN, {"run": run.pk, "all": json.dumps(everything)})
        rows = {row[0]: row[1:] for row in cursor.fetchall()}
    return [_kept(name, *rows[name]) for name in CLASSES if name in rows]


def _kept(
    name: str, due: Any, free: Any, seconds: int | None, rule: int, held: list[str], cleaned: bool,
    due_ends: bool | None, free_ends: bool | None, gone: str | None, rows: int | None, size: int | None,
) -> Kept:  # fmt: skip
    never = due_ends is False or free_ends is False
    return Kept(
        data_class=name,
        rows=rows or 0,
        bytes=size or 0,
        seconds=seconds,
        rule=rule,
        due_at=due,
        goes_at=None if held or never or cleaned else free,
        gone_at=datetime.fromisoformat(gone) if gone else None,
        held=[] if cleaned else list(held),
        never=never,
    )

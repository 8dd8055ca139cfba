"""What pages and the API show of bulk actions: counts by outcome, results in pages, what a preview would meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from durableops.engine.bulk.verbs import BulkVerb
from runs.models import Bulk, BulkItem, Run
from runs.models.bulk import ITEM_STATES

PER_PAGE = 100
SAMPLES = 5

_COUNTS = "SELECT state, count(*) FROM runs_bulk_item WHERE bulk_id = %s GROUP BY state"
_MEETS = """
SELECT r.state, r.paused, ({fits}) AS fits, count(*) FROM runs_bulk_item i JOIN runs_run r ON r.id = i.run_id
WHERE i.bulk_id = %s GROUP BY 1, 2, 3 ORDER BY 3 DESC, 4 DESC"""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many of its runs have which outcome."""

    pending: int = 0
    done: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def settled(self) -> int:
        return self.done + self.refused + self.failed


def counts(bulk: Bulk) -> Counts:
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, [bulk.pk])
        return Counts(**dict(cursor.fetchall()))


@dataclass(frozen=True, kw_only=True)
class Meets:
    """So many captured runs in one state, as things are now."""

    state: str
    paused: bool
    fits: bool
    runs: int


def meets(bulk: Bulk, verb: BulkVerb) -> list[Meets]:
    """What the action would meet if it began now."""
    with connection.cursor() as cursor:
        cursor.execute(_MEETS.format(fits=verb.fits), [bulk.pk])
        return [Meets(state=row[0], paused=row[1], fits=bool(row[2]), runs=row[3]) for row in cursor.fetchall()]


@dataclass(kw_only=True)
class Result:
    """One line with its run, if the run is still there."""

    item: BulkItem
    run: Run | None


@dataclass(frozen=True, kw_only=True)
class Results:
    """A page of lines in the order in which they were captured."""

    rows: Sequence[Result]
    next: int | None
    """Pass it as `after` for the following page."""


def results(bulk: Bulk, *, state: str = "", after: int = 0, limit: int = PER_PAGE) -> Results:
    """One page of lines, of one outcome if `state` is given."""
    wanted: dict[str, Any] = {"bulk": bulk, "seq__gt": after}
    if state in ITEM_STATES:
        wanted["state"] = state
    found = list(BulkItem.objects.filter(**wanted).order_by("seq")[: limit + 1])
    shown = found[:limit]
    runs = Run.objects.select_related("plan").in_bulk([item.run_id for item in shown])
    return Results(
        rows=[Result(item=item, run=runs.get(item.run_id)) for item in shown],
        next=shown[-1].seq if len(found) > limit else None,
    )


def samples(bulk: Bulk) -> Sequence[Result]:
    """The first few of its runs."""
    return results(bulk, limit=SAMPLES).rows

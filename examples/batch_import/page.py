"""One page of rows becomes tickets and rejects; what is remembered about a page is decided in workflows.py.

Duplicate ids are found without remembering ids. Within a page, a dictionary as large as the page tells. Across pages,
the effect's slot tells, which is made of the run and the id: the second row finds it taken by an earlier page, and
whether it asked for the same ticket says whether the rows were equal. A row of this very page, entered again after a
crash, finds its own record instead and is answered from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durableops import Call, DuplicateName, EffectConflict, Refused, Retry, Run, tool
from examples.batch_import.layout import Item, Layout, item_of
from examples.batch_import.reader import Reject, Row
from examples.desk import post_ticket


@tool(
    safety="keyed",
    timeout=5,
    retry=Retry(max_attempts=8, first_delay=0.2, factor=2, max_delay=10),
    key_window=timedelta(hours=24),
    resource_id="id",
)
def create_ticket(call: Call, *, title: str, details: dict[str, str]) -> dict[str, Any]:
    """Open a ticket for one row."""
    return {"id": post_ticket(call, title=title, details=details)["id"]}


@dataclass(frozen=True, kw_only=True)
class PageOutcome:
    """What came of one page."""

    imported: int
    duplicates: int
    """Rejects that say no more than an earlier row did."""
    rejects: list[Reject]
    """In the order of the source."""


def import_page(run: Run, layout: Layout, rows: Sequence[Row | Reject]) -> PageOutcome:
    """Import the rows of a page. Raises what a call raised that got no answer, so that the step is tried again."""
    items, rejects, duplicates = sift(layout, rows)
    requests = [{"resource": item.reference, "title": item.title, "details": item.details} for item in items]
    for item, result in zip(items, run.call_many(create_ticket, requests, on_error="return"), strict=True):
        if isinstance(result, Exception):
            rejects.append(Reject(item.line, reason_of(result), item.reference))
            duplicates += isinstance(result, DuplicateName)
    rejects.sort(key=lambda reject: reject.line)
    return PageOutcome(imported=len(rows) - len(rejects), duplicates=duplicates, rejects=rejects)


def sift(layout: Layout, rows: Sequence[Row | Reject]) -> tuple[list[Item], list[Reject], int]:
    """The items worth asking for, the rows that are not, and how many of those only repeat a row of this page."""
    firsts: dict[str, Item] = {}
    rejects: list[Reject] = []
    duplicates = 0
    for row in rows:
        item = item_of(row, layout) if isinstance(row, Row) else row
        if isinstance(item, Reject):
            rejects.append(item)
        elif (first := firsts.setdefault(item.reference, item)) is not item:
            equal = (first.title, first.details) == (item.title, item.details)
            duplicates += equal
            reason = f"duplicate of line {first.line}" if equal else f"line {first.line} has this id with other content"
            rejects.append(Reject(item.line, reason, item.reference))
    return list(firsts.values()), rejects, duplicates


def reason_of(error: Exception) -> str:
    """Why a row gets no ticket. Raises the error again if it only says that nobody knows yet."""
    if isinstance(error, DuplicateName):
        return "duplicate of an earlier row"
    if isinstance(error, EffectConflict):
        return "an earlier row has this id with other content"
    if isinstance(error, Refused):
        return f"refused by the desk: {error}"
    raise error

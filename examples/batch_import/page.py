"""One page of rows becomes tickets and rejects; what is remembered about a page is decided in workflows.py.

Duplicate ids are found without remembering ids. Within a page a dictionary as large as the page tells. Across pages the
effect's slot tells: it is made of the run and the id, and the request names the row's line, so a second row with the
same id asks the same slot for another request. The engine refuses that, unsent, and names the recorded result, whose
digest says whether the rows were equal. The same row, entered again after a crash, asks for the very same request and
gets the recorded result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from durableops import Call, CallsFailed, EffectConflict, Refused, Retry, Run, tool
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
def create_ticket(call: Call, *, title: str, details: dict[str, str], line: int, digest: str) -> dict[str, Any]:
    """Open a ticket for one row."""
    ticket = post_ticket(call, title=title, details={**details, "source line": line})
    return {"id": ticket["id"], "line": line, "digest": digest}


@dataclass(frozen=True, kw_only=True)
class PageOutcome:
    """What came of one page."""

    imported: int
    duplicates: int
    rejects: list[Reject]
    """In the order of the source; duplicates among them."""


def import_page(run: Run, layout: Layout, rows: Sequence[Row | Reject]) -> PageOutcome:
    """Import the rows of a page. Raises CallsFailed if the desk could not be asked about some of them."""
    firsts: dict[str, Item] = {}
    rejects: list[Reject] = []
    duplicates = 0
    for row in rows:
        item = item_of(row, layout) if isinstance(row, Row) else row
        if isinstance(item, Reject):
            rejects.append(item)
        elif (first := firsts.setdefault(item.reference, item)) is not item:
            duplicates += first.digest == item.digest
            rejects.append(_reject_of_second(item, line=first.line, digest=first.digest))
    items = list(firsts.values())
    for item, error in failures_of(run, items):
        recorded = recorded_row(error)
        duplicates += bool(recorded) and recorded.get("digest") == item.digest
        rejects.append(_reject_of_failure(item, error, recorded))
    rejects.sort(key=lambda reject: reject.line)
    return PageOutcome(imported=len(rows) - len(rejects), duplicates=duplicates, rejects=rejects)


def failures_of(run: Run, items: Sequence[Item]) -> list[tuple[Item, Exception]]:
    """Ask for a ticket for every item; return those that definitely get none, and why."""
    try:
        run.call_many(create_ticket, [_request_for(item) for item in items])
    except CallsFailed as failed:
        failures: dict[int, Exception] = failed.context["failures"]
        if not all(isinstance(error, EffectConflict | Refused) for error in failures.values()):
            raise
        return [(items[index], error) for index, error in sorted(failures.items())]
    return []


def _request_for(item: Item) -> dict[str, Any]:
    return {
        "resource": item.reference,
        "title": item.title,
        "details": item.details,
        "line": item.line,
        "digest": item.digest,
    }


def recorded_row(error: Exception) -> dict[str, Any]:
    """The recorded result that a conflicting request ran into; empty if there is none."""
    result = error.context.get("recorded") if isinstance(error, EffectConflict) else None
    return result if isinstance(result, dict) else {}


def _reject_of_second(item: Item, *, line: int, digest: str) -> Reject:
    if digest == item.digest:
        return Reject(item.line, f"duplicate of line {line}", item.reference)
    return Reject(item.line, f"conflict: line {line} has the same id and other content", item.reference)


def _reject_of_failure(item: Item, error: Exception, recorded: dict[str, Any]) -> Reject:
    if recorded:
        return _reject_of_second(item, line=recorded["line"], digest=recorded["digest"])
    if isinstance(error, EffectConflict):
        # The first row with this id got no ticket (the desk refused it); this one is not tried in its place.
        return Reject(item.line, "conflict: an earlier row with the same id was refused", item.reference)
    return Reject(item.line, str(error), item.reference)

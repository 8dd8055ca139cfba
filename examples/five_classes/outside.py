"""What reached the other side: counted by the desk, by the ledger, and in our own table."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from examples.demo.desk_client import DeskClient
from examples.five_classes.tools import NOTES
from examples.ledger_desk.client import LedgerClient
from runs.models import DrillReport


@dataclass(kw_only=True)
class Counted:
    """What reached the other side, by the text that it was told."""

    requests: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    """Tickets, entries, notes; for a `read`, answers."""
    keys: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def count(desk: DeskClient, ledger: LedgerClient) -> Counted:
    """Ask the desk, the ledger and our own table."""
    seen = Counted()
    for request in desk.requests():
        seen.requests[request.reference] += 1
        seen.keys[request.reference].add(request.key)
    seen.done.update(ticket.reference for ticket in desk.tickets())
    for looked in ledger.requests():
        seen.requests[looked.text] += 1
        seen.keys[looked.text].add(looked.key)
        seen.done[looked.text] += looked.outcome == "found"
    seen.done.update(entry.text for entry in ledger.entries())
    for text in DrillReport.objects.filter(drill=NOTES).values_list("report__text", flat=True):
        seen.requests[text] += 1
        seen.done[text] += 1
    return seen


def forget_notes() -> None:
    """Take the local tool's rows away again: they are no reports."""
    DrillReport.objects.filter(drill=NOTES).delete()

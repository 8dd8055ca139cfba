"""What a demo or drill asks of the ledger: its request log and its entries."""

from __future__ import annotations

from dataclasses import dataclass

from examples.serving.client import ServiceClient


@dataclass(frozen=True, kw_only=True)
class LedgerRequest:
    """One request as the ledger recorded it."""

    kind: str
    key: str
    text: str
    outcome: str


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One entry as the ledger keeps it."""

    id: str
    text: str
    reverses: str
    """The entry it takes back; empty if none."""


class LedgerClient(ServiceClient):
    """A running ledger."""

    def requests(self) -> list[LedgerRequest]:
        """Every request the ledger ever received, in order."""
        return [
            LedgerRequest(kind=row["kind"], key=row["key"], text=row["text"], outcome=row["outcome"])
            for row in self.rows("requests")
        ]

    def entries(self) -> list[LedgerEntry]:
        """Every entry the ledger ever booked, in order."""
        return [
            LedgerEntry(
                id=f"E-{row['id']}", text=row["text"], reverses=f"E-{row['reverses']}" if row["reverses"] else ""
            )
            for row in self.rows("entries")
        ]

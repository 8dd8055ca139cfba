"""What the demo asks of the desk: its request log and its tickets."""

from __future__ import annotations

from dataclasses import dataclass

from examples.serving.client import ServiceClient


@dataclass(frozen=True, kw_only=True)
class DeskRequest:
    """One request as the desk recorded it."""

    key: str
    outcome: str
    reference: str = ""


@dataclass(frozen=True, kw_only=True)
class DeskTicket:
    """One ticket as the desk keeps it."""

    key: str
    reference: str


class DeskClient(ServiceClient):
    """A running desk."""

    def requests(self) -> list[DeskRequest]:
        """Every request the desk ever received, in order."""
        return [
            DeskRequest(key=row["key"], outcome=row["outcome"], reference=row["reference"])
            for row in self.rows("requests")
        ]

    def tickets(self) -> list[DeskTicket]:
        """Every ticket the desk ever opened, in order."""
        return [DeskTicket(key=row["key"], reference=row["reference"]) for row in self.rows("tickets")]

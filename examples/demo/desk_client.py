"""What the demo asks of the desk: its faults, its request log, its tickets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

PAGE = 5000


@dataclass(frozen=True, kw_only=True)
class DeskRequest:
    """One request as the desk recorded it."""

    key: str
    outcome: str


@dataclass(frozen=True, kw_only=True)
class DeskTicket:
    """One ticket as the desk keeps it."""

    key: str
    reference: str


class DeskClient:
    """A running desk."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=10.0)

    def set_fault(self, **fields: Any) -> int:
        """Ask for misbehaviour; returns its number."""
        return int(self._answer("POST", "/faults", json=fields)["id"])

    def fault(self, number: int) -> dict[str, Any]:
        """What a fault has struck."""
        faults: list[dict[str, Any]] = self._answer("GET", "/faults")["faults"]
        return next(fault for fault in faults if fault["id"] == number)

    def release(self, number: int) -> None:
        """Let go of what a fault holds."""
        self._answer("POST", f"/faults/{number}/release")

    def forget_faults(self) -> None:
        """Behave from now on."""
        self._answer("DELETE", "/faults")

    def requests(self) -> list[DeskRequest]:
        """Every request the desk ever received, in order."""
        return [DeskRequest(key=row["key"], outcome=row["outcome"]) for row in self._rows("requests")]

    def tickets(self) -> list[DeskTicket]:
        """Every ticket the desk ever opened, in order."""
        return [DeskTicket(key=row["key"], reference=row["reference"]) for row in self._rows("tickets")]

    def _rows(self, table: str) -> Iterator[dict[str, Any]]:
        after: int | None = 0
        while after is not None:
            page = self._answer("GET", f"/{table}", params={"after": after, "limit": PAGE})
            yield from page[table]
            after = page["next_after"]

    def _answer(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.request(method, path, **options).raise_for_status().json()
        return answer

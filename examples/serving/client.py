"""What a demo or drill asks of a service: its faults, an outage, the rows of its logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

PAGE = 5000


class ServiceClient:
    """A running service."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=10.0)

    def close(self) -> None:
        """Let go of its connections."""
        self._http.close()

    def set_fault(self, **fields: Any) -> int:
        """Ask for misbehaviour; returns its number."""
        return int(self._answer("POST", "/faults", json=fields)["id"])

    def faults(self) -> list[dict[str, Any]]:
        """Every fault and what it has struck."""
        found: list[dict[str, Any]] = self._answer("GET", "/faults")["faults"]
        return found

    def fault(self, number: int) -> dict[str, Any]:
        """What a fault has struck."""
        return next(fault for fault in self.faults() if fault["id"] == number)

    def release(self, number: int) -> None:
        """Let go of what a fault holds."""
        self._answer("POST", f"/faults/{number}/release")

    def forget_faults(self) -> None:
        """Behave from now on."""
        self._answer("DELETE", "/faults")

    def go_down(self, seconds: float) -> None:
        """Refuse connections for a while."""
        self._answer("POST", "/down", json={"seconds": seconds})

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Every row of a log, in order."""
        after: int | None = 0
        while after is not None:
            page = self._answer("GET", f"/{table}", params={"after": after, "limit": PAGE})
            yield from page[table]
            after = page["next_after"]

    def _answer(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.request(method, path, **options).raise_for_status().json()
        return answer

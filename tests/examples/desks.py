"""The example services in processes of their own, for tests: how to start them and how to speak to them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

CHECKOUT = Path(__file__).resolve().parents[2]


class ServiceClient:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=10)

    def fault(self, kind: str, **fields: Any) -> int:
        answer = self.http.post("/faults", json={"kind": kind, **fields})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def faults(self) -> list[dict[str, Any]]:
        return list(self.http.get("/faults").json()["faults"])

    def release(self, fault: int) -> None:
        assert self.http.post(f"/faults/{fault}/release").is_success

    def requests(self) -> list[dict[str, Any]]:
        return list(self.http.get("/requests", params={"limit": 10_000}).json()["requests"])

    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in self.requests()]

    def stats(self) -> dict[str, Any]:
        return dict(self.http.get("/stats").json())


class DeskClient(ServiceClient):
    """A running ticket desk."""

    def open(self, reference: str = "A-1", *, key: str = "", title: str = "a title", **options: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post("/tickets", json={"reference": reference, "title": title}, headers=headers, **options)

    def tickets(self) -> list[dict[str, Any]]:
        return list(self.http.get("/tickets", params={"limit": 10_000}).json()["tickets"])


class LedgerClient(ServiceClient):
    """A running ledger."""

    def post(self, text: str = "invoice 17", amount: int = 11900, *, key: str = "", **options: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"account": "4400", "amount": amount, "text": text}
        return self.http.post("/entries", json=body, headers=headers, **options)

    def reverse(self, entry: str, text: str = "reversal") -> httpx.Response:
        return self.http.post(f"/entries/{entry}/reversal", json={"text": text})

    def find(self, text: str) -> list[str]:
        return [entry["id"] for entry in self.http.get("/search", params={"text": text}).json()["entries"]]

    def entries(self) -> list[dict[str, Any]]:
        return list(self.http.get("/entries", params={"limit": 10_000}).json()["entries"])


@contextmanager
def running_desk(data: Path, *arguments: str) -> Iterator[DeskClient]:
    with _running(DeskClient, "examples.ticket_desk", data, *arguments) as client:
        yield client


@contextmanager
def running_ledger(data: Path) -> Iterator[LedgerClient]:
    with _running(LedgerClient, "examples.ledger_desk", data) as client:
        yield client


@contextmanager
def _running[C: ServiceClient](kind: type[C], module: str, data: Path, *arguments: str) -> Iterator[C]:
    command = [sys.executable, "-m", module, "--data", str(data), "--stop-at-end-of-input", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        assert process.stdout
        client = kind(process, json.loads(process.stdout.readline())["url"])
        try:
            yield client
        finally:
            client.http.close()
            process.kill()

"""A real desk in a process of its own, for tests: how to start it and how to speak to it."""

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


class DeskClient:
    """A running desk."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=10)

    def open(self, reference: str = "A-1", *, key: str = "", title: str = "a title", **options: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return self.http.post("/tickets", json={"reference": reference, "title": title}, headers=headers, **options)

    def fault(self, kind: str, **fields: Any) -> int:
        answer = self.http.post("/faults", json={"kind": kind, **fields})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def faults(self) -> list[dict[str, Any]]:
        return list(self.http.get("/faults").json()["faults"])

    def requests(self) -> list[dict[str, Any]]:
        return list(self.http.get("/requests", params={"limit": 10_000}).json()["requests"])

    def outcomes(self) -> list[str]:
        return [row["outcome"] for row in self.requests()]

    def tickets(self) -> list[dict[str, Any]]:
        return list(self.http.get("/tickets", params={"limit": 10_000}).json()["tickets"])

    def stats(self) -> dict[str, Any]:
        return dict(self.http.get("/stats").json())


@contextmanager
def running_desk(data: Path, *arguments: str) -> Iterator[DeskClient]:
    command = [sys.executable, "-m", "examples.ticket_desk", "--data", str(data), "--stop-at-end-of-input", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        assert process.stdout
        desk = DeskClient(process, json.loads(process.stdout.readline())["url"])
        try:
            yield desk
        finally:
            desk.http.close()
            process.kill()

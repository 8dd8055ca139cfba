"""A desk that answers as its script says, and workflows of one step that ask it. Nothing here asserts."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connections

from durableops import tool
from tests.engine.one_step import AT_ONCE


class Desk:
    """The other side: what it was sent, and what it answers. `script` is consumed, then everything succeeds."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, str, int]] = []
        self.lock = threading.Lock()

    def answer(self, call: Any, **request: Any) -> Any:
        with self.lock:
            self.calls.append((call.key, call.resource, call.attempt))
            next_ = self.script.pop(0) if self.script else None
        if isinstance(next_, BaseException):
            raise next_
        if callable(next_):
            try:
                return next_()
            finally:
                # Threads of a pool outlive the test; their connections must not.
                if threading.current_thread().name.startswith("call"):
                    connections.close_all()
        return {"id": f"T-{call.resource}", **request} if next_ is None else next_

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.calls]


def keyed(desk: Desk, **options: Any):
    values: dict[str, Any] = {"safety": "keyed", "name": "send", "retry": AT_ONCE, "resource_id": "id"} | options

    @tool(**values)
    def send(call, *, title: str = ""):
        return desk.answer(call, title=title)

    return send

"""A legacy ledger that does what it is told as often as it is told, and steps that post to it."""

from __future__ import annotations

from typing import Any

from durableops import tool
from durableops.upkeep.invariants.report import CHECKS, examine
from tests.engine.one_step import AT_ONCE


class Ledger:
    """A system without deduplication: it does what it is told as often as it is told."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.posted: list[str] = []

    def post(self, call: Any, **request: Any) -> Any:
        self.posted.append(call.resource)
        following = self.script.pop(0) if self.script else None
        if isinstance(following, BaseException):
            raise following
        if callable(following):
            following = following()
            if isinstance(following, BaseException):
                raise following
        return following or {"id": f"L-{len(self.posted)}", **request}


def posting(ledger: Ledger, *, name: str = "post", **options: Any):
    values: dict[str, Any] = {
        "safety": "legacy", "system": "ledger", "name": name, "retry": AT_ONCE, "resource_id": "id", "timeout": 5.0,
    } | options  # fmt: skip

    @tool(**values)
    def post(call, *, amount: int = 0):
        return ledger.post(call, amount=amount)

    return post


def sound(engine) -> None:
    """What must always hold holds."""
    checks = [check for check in CHECKS if check.name != "queued_run_has_a_living_worker_that_knows_it"]
    found = examine(engine.worker.database, checks=checks, grace_seconds=0.0)
    assert [(f.check.name, f.sample) for f in found.broken] == []

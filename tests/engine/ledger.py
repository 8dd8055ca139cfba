"""A legacy ledger that does what it is told as often as it is told, and steps that post to it."""

from __future__ import annotations

import json
from typing import Any

from durableops import Retry, State, step, tool, workflow
from durableops.upkeep.invariants.report import CHECKS, examine
from runs.models import Checkpoint, IdempotencyRecord, Run

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
ONCE = Retry(max_attempts=1)


class Facts(State):
    n: int = 0


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


def one_step(function, *, name="one", retry=AT_ONCE, **options):
    workflow(name=name, version=1, state=Facts, **options)(type("One", (), {"a": step(id="a", retry=retry)(function)}))


def effects(run: Run) -> list[IdempotencyRecord]:
    return list(IdempotencyRecord.objects.filter(run=run).order_by("id"))


def output(run: Run) -> Any:
    text = Checkpoint.objects.get(run=run, kind="finish").output
    return None if text is None else json.loads(text)


def sound(engine) -> None:
    """What must always hold holds."""
    checks = [check for check in CHECKS if check.name != "queued_run_has_a_living_worker_that_knows_it"]
    found = examine(engine.worker.database, checks=checks, grace_seconds=0.0)
    assert [(f.check.name, f.sample) for f in found.broken] == []

"""A bank that charges and refunds, each once for its key, and runs that ask it. Nothing here but `linked` asserts."""

from __future__ import annotations

from typing import Any

from durableops import Retry, State
from durableops.engine import commands
from runs.models import Compensation, CompensationOrder, Run

ONCE = Retry(max_attempts=1)
THRICE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)
WHY: dict[str, Any] = {"actor": "ann", "reason": "wrong customer"}


class Facts(State):
    n: int = 0


class Bank:
    """The other side: what was done and undone, each once for its key, and what the next undo answers instead."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.refunds: dict[str, str] = {}
        self.order: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.script: dict[str, list[BaseException]] = {}

    def refund(self, call: Any, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if errors := self.script.get(call.resource):
            raise errors.pop(0)
        if call.key not in self.refunds:
            self.refunds[call.key] = call.resource
            self.order.append(call.resource)
        return {"id": f"refund-{call.resource}"}


def run_of(engine: Any, *words: str, ask: bool = True) -> Run:
    return engine.run("shop", {"do": list(words), "ask": ask})


def undone(run: Run) -> list[Compensation]:
    """Newest first, as they are worked through."""
    return list(Compensation.objects.filter(run=run).order_by("-effect_id"))


def states(run: Run) -> list[str]:
    return [one.state for one in undone(run)]


def linked(run: Run) -> Run:
    order = CompensationOrder.objects.filter(run=run).order_by("-id").first()
    assert order is not None
    assert order.linked_run is not None
    return order.linked_run


def cancelled(engine: Any, *words: str, done: str = "compensate") -> Run:
    run = run_of(engine, *words)
    commands.cancel(run.pk, tenant=engine.tenant, done=done, **WHY)
    engine.drain()
    run.refresh_from_db()
    return run

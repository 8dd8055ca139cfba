"""What the tests of going back share: a trip that calls, decides, waits and reads, and how to go back in it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from durableops import Fatal, Retry, State, step, tool, workflow
from durableops.engine import branching
from durableops.engine.database import Database
from durableops.upkeep.invariants.report import examine
from runs.models import Run

ONCE = Retry(max_attempts=1)
WHY: dict[str, Any] = {"actor": "ann", "reason": "again"}
NEVER = UUID("01990000-0000-7000-8000-000000000000")


class Counted:
    """What the other side was asked, by tool and resource, with the key of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.decided: list[Any] = []
        self.fail = True
        self.on_call: Any = lambda: None

    def of(self, tool: str) -> list[str]:
        return [resource for name, resource in self.calls if name == tool]


@pytest.fixture
def seen() -> Counted:
    return Counted()


@pytest.fixture
def trip(engine, seen) -> str:
    """Three steps that call, decide, wait and read; the last one fails as long as it is told to."""

    @tool(safety="keyed", name="book", resource_id="id", retry=ONCE)
    def book(call, *, n: int = 0):
        seen.calls.append(("book", call.resource))
        seen.keys.append(call.key)
        return {"id": f"b-{call.resource}"}

    @tool(safety="read", name="look", retry=ONCE)
    def look(call):
        seen.calls.append(("look", call.resource))
        seen.on_call()
        return len(seen.of("look"))

    @tool(safety="local", name="note")
    def note(call):
        seen.calls.append(("note", call.resource))
        return 1

    def choose(n: int) -> int:
        seen.decided.append(n)
        return n + len(seen.decided)

    class TripState(State):
        n: int = 0
        looks: list[int] = []
        chosen: int = 0

    @workflow(name="trip", version=1, state=TripState)
    class Trip:
        @step(retry=ONCE)
        def first(run: Any):
            run.call(book, resource="hotel")
            run.state.n = 1

        @step(retry=ONCE)
        def second(run: Any):
            run.call(book, resource="flight")
            run.call(note, resource="diary")
            run.state.looks = [*run.state.looks, run.call(look, resource="sky")]
            run.state.chosen = run.decide("choice", {"n": 7}, choose)
            run.state.n = 2

        @step(retry=ONCE)
        def third(run: Any):
            run.call(book, resource="car")
            if seen.fail:
                raise Fatal("the last step fails")
            run.state.n = 3

    return "trip"


def back(run: Run, seq: int, **more: Any) -> Any:
    """Retry from a checkpoint, whatever the plan."""
    return branching.retry_from(run.pk, tenant=run.tenant, seq=seq, plan_hash=None, **WHY, **more)


def plan(run: Run, verb: str = "retry_from", seq: int | None = 1) -> Any:
    from django.db import connection, transaction

    from durableops.engine import guard

    with transaction.atomic(), connection.cursor() as cursor:
        return guard.plan(cursor, verb, run.pk, seq=seq)


def told(run: Run, verb: str = "retry_from", seq: int | None = 1) -> set[tuple[str, str, int]]:
    return {(line.category, line.tool, line.calls) for line in plan(run, verb, seq).lines}


def invariants_hold() -> None:
    database = Database(name="test")
    try:
        broken = examine(database, grace_seconds=0.0).broken
        ignored = "queued_run_has_a_living_worker_that_knows_it"
        assert [(f.check.name, f.sample) for f in broken if f.check.name != ignored] == []
    finally:
        database.close()


def fork(run: Run, seq: int = 1, *, once: str = "", **more: Any) -> Run:
    once = once or str(uuid4())
    done = branching.fork(run.pk, tenant=run.tenant, seq=seq, plan_hash=None, once=once, **WHY, **more)
    assert done.run_id is not None
    return Run.objects.get(pk=done.run_id)

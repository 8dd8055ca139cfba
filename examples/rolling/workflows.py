"""One workflow in three versions: the second has a migration, the third fits neither of the others.

A process has those that `ROLLING_CODE` names, as a deploy would: workers of the first deploy have `1`. Each step notes
which code ran it, so that the record can say whether that was the code of its checkpoint.
"""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import httpx  # noqa: F401 - loaded before workers fork: a child that replaces a killed one has it at once

from durableops import Call, Migrated, Page, Retry, Run, State, migration, step, tool, workflow
from examples.desk import post_ticket
from examples.ledger import book

NAME = "rolling"
CODE_VARIABLE = "ROLLING_CODE"
EVERY_CODE = "1,2,3"
GO, INSPECTED = "go", "inspected"
LOADED = ("load", "ingest")
"""What the same step is called in the first and in the second version."""
PAGES = 4
WAITS_AT = 2
BUSY_SECONDS = 0.1
LEDGER = "rolling-ledger"
_PATIENT = Retry(max_attempts=6, first_delay=0.2, factor=2, max_delay=2)
_HOUR = timedelta(hours=1)


@tool(
    safety="keyed", name="rolling.open", timeout=10, retry=_PATIENT, key_window=timedelta(hours=24), resource_id="id",
)  # fmt: skip
def open_ticket(call: Call, *, title: str) -> dict[str, Any]:
    """Open a ticket."""
    return {"id": post_ticket(call, title=title, details={})["id"]}


@tool(safety="legacy", name="rolling.book", system=LEDGER, timeout=1.5, resource_id="id", resource="text")
def book_entry(call: Call, *, text: str) -> dict[str, Any]:
    """Book an entry, one at a time, in a ledger that deduplicates nothing."""
    return {"id": book(call, account="drill", amount=100, text=text)["id"]}


class Mode(Enum):
    """Something that plain JSON does not know."""

    SAFE = "safe"


class Facts(State):
    """Types that come back from a checkpoint as they were, in whichever worker and version, or not at all."""

    price: Decimal = Decimal("0.10")
    moment: datetime = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    pair: tuple[int, str] = (1, "a")
    members: set[int] = {1, 2}
    mode: Mode = Mode.SAFE
    by_number: dict[int, str] = {1: "a"}


FACTS = Facts()


class One(State):
    """As the first version keeps it."""

    name: str
    kind: str
    facts: Facts = FACTS
    source: str = "here"
    trail: list[str] = []


class Two(State):
    """One source became several."""

    name: str
    kind: str
    facts: Facts
    sources: list[str]
    trail: list[str] = []


class Three(State):
    """Nothing of the older versions says what `origin` is: a person does."""

    name: str
    kind: str
    facts: Facts
    origin: dict[str, str]
    trail: list[str] = []


def _note(run: Run, version: int) -> list[str]:
    if run.state.facts != FACTS or str(run.state.facts.price) != "0.10":
        raise AssertionError(f"the facts came back as {run.state.facts!r}")
    run.state.trail.append(f"{run.step_id}@{version}")
    return list(run.state.trail)


def _ticket(run: Run, what: str) -> None:
    text = f"{run.state.name} {what}"
    run.call(open_ticket, resource=text, title=text)


def _prepare(run: Run, version: int) -> None:
    _ticket(run, "prepare")
    _note(run, version)


def _load(run: Run, version: int) -> None:
    """In the middle of this one, runs of every kind are when the second version comes."""
    kind = run.state.kind
    if kind in ("waiting", "paused"):
        run.wait_for(GO, correlation=run.state.name, timeout=_HOUR)
        _ticket(run, "load")
    elif kind in ("doubt", "pending"):
        run.call(book_entry, text=f"{run.state.name} load")
    else:
        for [page] in run.pages(lambda at: _page(at, kind, version), start=0):
            if kind == "pages":
                if page == WAITS_AT:
                    run.wait_for(GO, correlation=run.state.name, timeout=_HOUR)
                _ticket(run, f"page {page}")
    _note(run, version)


def _page(at: int, kind: str, version: int) -> Page:
    """Four pages; of a busy run as many as there are until the next version comes."""
    if kind == "busy":
        time.sleep(BUSY_SECONDS)
        return Page(items=[at], next_cursor=at + 1 if version == 1 else None)
    return Page(items=[at], next_cursor=at + 1 if at + 1 < PAGES else None)


def _inspect(run: Run) -> None:
    run.wait_for(INSPECTED, correlation=run.state.name, timeout=_HOUR, look_back=_HOUR)
    _note(run, 2)


def _deliver(run: Run, version: int) -> list[str]:
    _ticket(run, "deliver")
    return _note(run, version)


def _first() -> None:
    @workflow(name=NAME, version=1, state=One, deadline=_HOUR, max_recoveries=20)
    class First:
        @step(timeout=60, tools=[open_ticket])
        def prepare(run: Run) -> None:
            _prepare(run, 1)

        @step(timeout=600, tools=[open_ticket, book_entry])
        def load(run: Run) -> None:
            _load(run, 1)

        @step(timeout=60, tools=[open_ticket])
        def deliver(run: Run) -> list[str]:
            return _deliver(run, 1)


def _second() -> None:
    @workflow(name=NAME, version=2, state=Two, deadline=_HOUR, max_recoveries=20, migrate="automatic")
    class Second:
        @step(timeout=60, tools=[open_ticket])
        def prepare(run: Run) -> None:
            _prepare(run, 2)

        @step(timeout=600, tools=[open_ticket, book_entry])
        def ingest(run: Run) -> None:
            _load(run, 2)

        @step(timeout=60)
        def inspect(run: Run) -> None:
            _inspect(run)

        @step(timeout=60, tools=[open_ticket])
        def deliver(run: Run) -> list[str]:
            return _deliver(run, 2)

    @migration(Second, from_version=1)
    def source_became_sources(old: dict[str, Any]) -> Migrated:
        kept = {name: old[name] for name in ("name", "kind", "facts", "trail")}
        calls = {"rolling.book": "rolling.book", "rolling.open": "rolling.open"}
        return Migrated(state={**kept, "sources": [old["source"]]}, steps={"load": "ingest"}, effects=calls)


def _third() -> None:
    @workflow(name=NAME, version=3, state=Three, deadline=_HOUR, max_recoveries=20)
    class Third:
        @step(timeout=60, tools=[open_ticket])
        def prepare(run: Run) -> None:
            _prepare(run, 3)

        @step(timeout=60, tools=[open_ticket])
        def finish(run: Run) -> list[str]:
            _ticket(run, "finish")
            return _note(run, 3)


for _declare, _code in ((_first, "1"), (_second, "2"), (_third, "3")):
    if _code in os.environ.get(CODE_VARIABLE, EVERY_CODE).split(","):
        _declare()

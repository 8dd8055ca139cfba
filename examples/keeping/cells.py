"""The table of the drill: which run, how old, held by what; and what of it must be there afterwards. Pure.

What holds what is said here once more, in the words of the promise and not by asking the product: the two must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product

ROW = "effect_key"
"""The last class to go: with it goes the run's row."""
DAYS: dict[str, int] = {
    "temp_file": 0,
    "raw_prompt": 1,
    "effect_body": 2,
    "effect_summary": 3,
    "decision": 4,
    "checkpoint": 5,
    "input": 6,
    "deliverable": 7,
    "event": 8,
    ROW: 9,
}
"""How long each class is kept by the drill's own rules, in days: no two alike, so that each has its own two sides."""
CLASSES = tuple(DAYS)
REOPEN_DAYS = 1000
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

OPEN = ("queued", "running", "waiting", "in_doubt", "in_review")
ENDED = ("succeeded", "failed", "cancelled", "timed_out", "exhausted")
MAY_BE_REOPENED = frozenset({"failed", "timed_out", "exhausted"})

ALL = frozenset(CLASSES)
TO_GO_ON = ALL - {"raw_prompt", "event"}
"""What a run needs to go on: its facts and its files; not what was asked of a model, nor the story."""
TO_DECIDE = ALL - {"raw_prompt", "temp_file"}
"""What a person needs to decide about it."""

NOTHING = "nothing"
HOLDS: dict[str, frozenset[str]] = {
    "may be reopened": TO_GO_ON,
    "effect in doubt": TO_DECIDE,
    "message not delivered": TO_DECIDE,
    "compensation owed": TO_DECIDE,
    "undoing ordered": TO_DECIDE,
    "open approval": TO_DECIDE,
    "open review": TO_DECIDE,
    "parent open": frozenset({"deliverable", ROW}),
    "parent may be reopened": frozenset({"deliverable", ROW}),
    "child open": frozenset({"input", "deliverable", ROW}),
    "child on record": frozenset({ROW}),
    "it undid what is on record": frozenset({ROW}),
    "key still known": frozenset({ROW}),
    "shared effect": frozenset({"effect_body", ROW}),
    "hold on the run": ALL,
    "hold on a label": ALL,
    "hold on the tenant": ALL,
}
"""What may hold a run that has ended, and what it needs of it."""
LAWFUL = tuple(name for name in HOLDS if name.startswith("hold on"))
NO_MORE = (
    NOTHING,
    "doubt settled",
    "message delivered",
    "compensation done",
    "approval given",
    "review closed",
    "key forgotten",
    "hold lifted",
    "parent ended",
    "later lineage",
)
"""What held it once, or only looks like it: holds nothing any more."""


@dataclass(frozen=True, order=True)
class Cell:
    """One run."""

    state: str
    held_by: str
    hours: int
    """Since it ended; of an open run, since it began."""

    def __str__(self) -> str:
        return f"{self.state}, {self.held_by}, {self.hours} h"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def has_files(self) -> bool:
        """Whether its files are really in the storage; of the others there are only the rows."""
        return self.held_by in (NOTHING, "hold on the run")

    @property
    def may_go_on(self) -> bool:
        """Whether it is open, or may be again."""
        return self.is_open or (self.held_by == "may be reopened" and self.state in MAY_BE_REOPENED)

    @property
    def age(self) -> timedelta:
        return self.hours * HOUR

    def stays(self, *, lifted: bool = False) -> frozenset[str]:
        """The classes that must all be there; of the others nothing may be. `lifted`: legal holds stand no more."""
        if self.is_open:
            return ALL
        held_by = NOTHING if lifted and self.held_by in LAWFUL else self.held_by
        needed = HOLDS.get(held_by, frozenset())
        if held_by == "may be reopened" and self.state not in MAY_BE_REOPENED:
            needed = frozenset()
        young = {name for name, days in DAYS.items() if self.age < days * DAY}
        kept = needed | young
        return kept | {ROW} if kept - {ROW} else kept

    @property
    def sides(self) -> list[tuple[str, str]]:
        """The classes whose window's end is an hour away from it, and on which side it is."""
        near = ((name, self.hours - days * 24) for name, days in DAYS.items())
        return [(name, "past it" if hours > 0 else "before it") for name, hours in near if abs(hours) == 1]


def ages() -> list[int]:
    """An hour before and an hour after the end of each window; nothing has ended an hour before it did."""
    return sorted({hours for days in DAYS.values() for hours in (days * 24 - 1, days * 24 + 1) if hours > 0})


def cells(*, short: bool) -> Iterator[Cell]:
    """Every state, age and holder; in the short form each holder with one state in turn, and each state with none."""
    for state, held_by in product(OPEN, (NOTHING, *(() if short else HOLDS))):
        yield from (Cell(state, held_by, hours) for hours in (1, 400 * 24))
    for number, held_by in enumerate((*HOLDS, *NO_MORE)):
        states = _some(number, held_by) if short else ENDED
        old = _some_ages(held_by) if short else ages()
        yield from (Cell(state, held_by, hours) for state, hours in product(states, old))


def _some(number: int, held_by: str) -> tuple[str, ...]:
    if held_by == NOTHING:
        return ENDED
    if held_by == "may be reopened":
        return ("failed", "cancelled")
    return (ENDED[number % len(ENDED)],)


def _some_ages(held_by: str) -> list[int]:
    """With nothing that holds it, both sides of every window; else the youngest, one half-way and the oldest."""
    all_of_them = ages()
    return all_of_them if held_by == NOTHING else [all_of_them[0], DAYS["checkpoint"] * 24 + 1, all_of_them[-1]]

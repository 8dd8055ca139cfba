"""The table of the drill: which class of tool is called how, and at which moment it is interrupted. Pure.

A row is a run: all cells of one class and one way of calling. A cell is a step of it, so a failpoint that is narrowed
to a step strikes one cell and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CLASSES = ("read", "local", "keyed")
WAYS = {"one": 1, "many": 3}
"""How it is called, `run.call` or `run.call_many`, and how many effects that is."""


class Moment(StrEnum):
    """When a cell is interrupted. The first five are SIGKILLs of the process that makes the call."""

    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    IN_FLIGHT = "in_flight"
    """The other side has done it, and its answer has not been read."""
    AFTER_ANSWER = "after_answer"
    AFTER_RESULT = "after_result"
    """The result is on record (with the intent of the call that follows), the step is not committed."""
    BEFORE_CHECKPOINT = "before_checkpoint"
    LOST_REQUEST = "lost_request"
    """No kill: the call times out, and the other side did nothing."""
    LOST_ANSWER = "lost_answer"
    """No kill: the call times out, and the other side did it."""


NO_SUCH_MOMENT: dict[tuple[str, Moment], str] = {
    ("read", Moment.AFTER_INTENT): "a read has no intent",
    ("read", Moment.AFTER_RESULT): "a read's result is recorded with the checkpoint",
    ("local", Moment.AFTER_INTENT): "intent, change and result are one commit",
    ("local", Moment.IN_FLIGHT): "nothing is in flight: the change is a statement of that commit",
    ("local", Moment.LOST_REQUEST): "there is no other side",
    ("local", Moment.LOST_ANSWER): "there is no other side",
}
"""Cells that cannot exist, and why. The report says so instead of leaving them out."""

POINTS = {
    Moment.BEFORE_INTENT: "before_intent",
    Moment.AFTER_INTENT: "after_intent",
    Moment.AFTER_ANSWER: "after_answer",
    Moment.BEFORE_CHECKPOINT: "before_checkpoint",
}
"""Failpoints at which a process is killed."""
KILLED_IN_FLIGHT = Moment.IN_FLIGHT
TIMEOUTS = {Moment.LOST_REQUEST: "before", Moment.LOST_ANSWER: "after"}
"""When the other side falls silent."""


@dataclass(frozen=True, order=True)
class Row:
    """One run."""

    safety: str
    way: str

    def __str__(self) -> str:
        return f"{self.safety}-{self.way}"

    @property
    def workflow(self) -> str:
        """Its workflow's name."""
        return f"effects-{self}"

    @property
    def cells(self) -> list[Cell]:
        """Its cells, in the order in which they are played."""
        return [Cell(row=self, moment=moment) for moment in Moment if (self.safety, moment) not in NO_SUCH_MOMENT]


@dataclass(frozen=True, order=True)
class Cell:
    """One step of it, interrupted once."""

    row: Row
    moment: Moment

    def __str__(self) -> str:
        return f"{self.row} {self.moment}"

    @property
    def step(self) -> str:
        """The id of its step."""
        return f"{self.row}.{self.moment}"

    @property
    def effects(self) -> list[str]:
        """What is asked for together: a text for each, by which everybody knows it."""
        return [f"{self} {number}" for number in range(1, WAYS[self.row.way] + 1)]

    @property
    def then(self) -> str | None:
        """What is asked for afterwards, so that the results before it travel with its intent."""
        return f"{self} then" if self.moment is Moment.AFTER_RESULT else None

    @property
    def asked(self) -> list[str]:
        """Everything it asks for."""
        return [*self.effects, *filter(None, [self.then])]

    @property
    def failpoint(self) -> tuple[str, int] | None:
        """Name of the failpoint that kills it, and at which passing; None if it is not killed by one."""
        if self.moment is Moment.AFTER_RESULT:
            # A local call commits as it goes; calls of other classes commit their intents together.
            point, before = ("before_intent", len(self.effects)) if self.row.safety == "local" else ("after_intent", 1)
            return f"{point}:{self.step}", before + 1
        point = POINTS.get(self.moment, "")
        return (f"{point}:{self.step}", 1) if point else None

    @property
    def is_killed(self) -> bool:
        """Whether a process is killed in it, by whatever."""
        return self.moment not in TIMEOUTS


def rows(only: str = "") -> list[Row]:
    """All of them, or those named in `only`: `keyed-one,local-many`."""
    wanted = set(filter(None, only.split(",")))
    every = [Row(safety=safety, way=way) for safety in CLASSES for way in WAYS]
    if unknown := wanted - {str(row) for row in every}:
        raise ValueError(f"there is no row {min(unknown)!r}; there are: {', '.join(map(str, every))}")
    return [row for row in every if not wanted or str(row) in wanted]

"""The table of the drill: which class of tool is called how, and at which moment it is interrupted. Pure.

A row is a run: all cells of one class and one way of calling. A cell is a step of it, so a failpoint that is narrowed
to a step strikes one cell and no other. When the run has ended, all it did is undone, and the undoing of each cell is
interrupted at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

CLASSES = ("read", "local", "keyed", "outbox", "legacy")
WAYS = {"one": 1, "many": 3}
"""How it is called, `run.call` or `run.call_many`, and how many effects that is."""

Victim = Literal["worker", "relay"]


class Moment(StrEnum):
    """When a cell is interrupted: by SIGKILL of the process that is at it, or by the other side's silence."""

    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    AFTER_DISPATCH = "after_dispatch"
    """Its turn at the legacy system has come and is on record; nothing has left."""
    RELAY_BEFORE_SEND = "relay_before_send"
    """Its message is in a relay's hand; nothing has left."""
    IN_FLIGHT = "in_flight"
    """The other side has done it, and its answer has not been read."""
    RELAY_AFTER_SEND = "relay_after_send"
    """The relay has read the answer, and it is not on record."""
    RELAY_AFTER_SETTLE = "relay_after_settle"
    """The answer is on record."""
    AFTER_ANSWER = "after_answer"
    AFTER_RESULT = "after_result"
    """The result is on record (with the intent of the call that follows), the step is not committed."""
    BEFORE_CHECKPOINT = "before_checkpoint"
    AFTER_CHECKPOINT = "after_checkpoint"
    LOST_REQUEST = "lost_request"
    """No kill: the call times out, and the other side did nothing."""
    LOST_ANSWER = "lost_answer"
    """No kill: the call times out, and the other side did it."""

    @property
    def is_timeout(self) -> bool:
        """Whether the other side falls silent."""
        return self in (Moment.LOST_REQUEST, Moment.LOST_ANSWER)


RELAYED = (Moment.RELAY_BEFORE_SEND, Moment.RELAY_AFTER_SEND, Moment.RELAY_AFTER_SETTLE)
TIMEOUTS = {Moment.LOST_REQUEST: "before", Moment.LOST_ANSWER: "after"}
"""When the other side falls silent."""
NO_SUCH_MOMENT: tuple[tuple[tuple[str, ...], tuple[Moment, ...], str], ...] = (
    (("read",), (Moment.AFTER_INTENT,), "a read has no intent"),
    (("read",), (Moment.AFTER_RESULT,), "a read's result is recorded with the checkpoint"),
    (("local",), (Moment.AFTER_INTENT,), "intent, change and result are one commit"),
    (("local",), (Moment.IN_FLIGHT,), "nothing is in flight: the change is a statement of that commit"),
    (("local",), tuple(TIMEOUTS), "there is no other side"),
    (("outbox",), (Moment.AFTER_INTENT, Moment.AFTER_RESULT), "a message is recorded with the checkpoint"),
    (("outbox",), (Moment.AFTER_ANSWER,), "the step waits for no answer; the relay does"),
    (("read", "local", "keyed", "outbox"), (Moment.AFTER_DISPATCH,), "it stands in no queue of a system"),
    (("read", "local", "keyed", "legacy"), RELAYED, "no relay is concerned"),
    (("read", "local", "keyed", "legacy"), (Moment.AFTER_CHECKPOINT,), "all is over; the drill ten-step kills there"),
)
"""Cells that cannot exist, and why. The report says so instead of leaving them out."""
DOUBTFUL = (
    Moment.AFTER_DISPATCH, Moment.IN_FLIGHT, Moment.AFTER_ANSWER, Moment.LOST_REQUEST, Moment.LOST_ANSWER,
)  # fmt: skip
"""Where nobody can know whether a legacy system did it. Nowhere else may it be in doubt."""


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
    def system(self) -> str:
        """Whose queue its calls stand in, if they are legacy: a doubt of one row holds up no other."""
        return f"effects-ledger-{self.way}"

    @property
    def is_undone(self) -> bool:
        """Whether there is anything to take back."""
        return self.safety != "read"

    @property
    def cells(self) -> list[Cell]:
        """Its cells, in the order in which they are played."""
        return [Cell(row=self, moment=moment) for moment in Moment if not why_not(self.safety, moment)]


@dataclass(frozen=True, order=True)
class Cell:
    """One step of it, interrupted once; or, once more, the undoing of that step."""

    row: Row
    moment: Moment
    undoing: bool = False

    def __str__(self) -> str:
        return f"{'undo ' * self.undoing}{self.row} {self.moment}"

    @property
    def step(self) -> str:
        """The id of its step."""
        return f"{self.row}.{self.moment}"

    @property
    def effects(self) -> list[str]:
        """What is asked for together: the resource of each, which is also the text by which the other side knows it."""
        return [f"{self.row} {self.moment} {number}" for number in range(1, WAYS[self.row.way] + 1)]

    @property
    def then(self) -> str | None:
        """What is asked for afterwards, so that the results before it travel with its intent."""
        return f"{self.row} {self.moment} then" if self.moment is Moment.AFTER_RESULT else None

    @property
    def asked(self) -> list[str]:
        """The resources of everything it asks for."""
        return [*self.effects, *filter(None, [self.then])]

    @property
    def failpoint(self) -> tuple[str, str, int] | None:
        """Point, place and passing at which it is killed; None if it is not killed by a failpoint."""
        if self.moment is Moment.IN_FLIGHT or self.moment.is_timeout:
            return None
        return self._undoing_failpoint() if self.undoing else self._doing_failpoint()

    def _doing_failpoint(self) -> tuple[str, str, int]:
        if self.moment is Moment.AFTER_RESULT:
            # A local call commits as it goes; the others commit the places or intents of a batch together.
            point, before = ("before_intent", len(self.effects)) if self.row.safety == "local" else ("after_intent", 1)
            return point, self.step, before + 1
        return self.moment.value, self.effects[0] if self.moment in RELAYED else self.step, 1

    def _undoing_failpoint(self) -> tuple[str, str, int] | None:
        if self.moment in (Moment.AFTER_RESULT, Moment.AFTER_CHECKPOINT):
            return None
        # One effect after the other: its own resource tells it from the rest.
        point = "after_undo" if self.moment is Moment.BEFORE_CHECKPOINT else self.moment.value
        return point, self.effects[0], 1

    @property
    def victim(self) -> Victim | None:
        """What is killed; None where nothing is."""
        if self.moment.is_timeout or (self.moment is not Moment.IN_FLIGHT and self.failpoint is None):
            return None
        is_relays = self.moment in RELAYED or (self.row.safety == "outbox" and self.moment is Moment.IN_FLIGHT)
        return "relay" if is_relays else "worker"

    @property
    def is_interrupted(self) -> bool:
        """Whether anything is done to it; some moments of doing are none of undoing."""
        return self.moment.is_timeout or self.victim is not None

    @property
    def undone(self) -> Cell:
        """The undoing of it."""
        return Cell(row=self.row, moment=self.moment, undoing=True)

    def text(self, resource: str) -> str:
        """What the other side is told about a resource."""
        return f"undo {resource}" if self.undoing else resource


def why_not(safety: str, moment: Moment) -> str:
    """Why a class has no such moment; empty if it has."""
    return next((why for classes, moments, why in NO_SUCH_MOMENT if safety in classes and moment in moments), "")


def rows(only: str = "") -> list[Row]:
    """All of them, or those named in `only`: `keyed-one,local-many`. Raises ValueError for one there is not."""
    every = [Row(safety=safety, way=way) for safety in CLASSES for way in WAYS]
    return _chosen(every, only)


def moments(only: str = "") -> list[Moment]:
    """All of them, or those named in `only`. Raises ValueError for one there is not."""
    return _chosen(list(Moment), only)


def _chosen[T](every: list[T], only: str) -> list[T]:
    wanted = set(filter(None, only.split(",")))
    if unknown := wanted - set(map(str, every)):
        raise ValueError(f"there is no {min(unknown)!r}; there are: {', '.join(map(str, every))}")
    return [one for one in every if not wanted or str(one) in wanted]


def missing() -> Iterator[str]:
    """The cells that cannot exist, in words."""
    for classes, moments, why in NO_SUCH_MOMENT:
        yield f"{', '.join(classes)}: no {', '.join(moments)}: {why}"

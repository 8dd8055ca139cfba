"""What the logic of a step asks its driver to do. The logic is written once, as generators; two drivers perform it.

A plain step's driver performs each op where it stands, an async step's driver awaits it. Each op's result is sent back
into the generator; an op that fails raises there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from durableops.authoring.definitions import ToolDefinition
from durableops.engine.calling import LiveCall
from durableops.engine.database import Database
from runs.fenced import FencedWrite, Written
from runs.transitions import Cursor


@dataclass(frozen=True)
class Commit:
    """Commit a fenced write. Answers with runs.fenced.Written; raises FenceLost when the run is not ours any more."""

    write: FencedWrite
    also: Callable[[Cursor, Written], None] | None = None
    """What one statement cannot say: done in the same transaction, after the write."""


@dataclass(frozen=True)
class Ask:
    """Run a function of the engine against the database and answer with what it returns."""

    work: Callable[[Database], Any]


@dataclass(frozen=True)
class Invoke:
    """One call of a tool's function."""

    tool: ToolDefinition
    call: LiveCall
    request: dict[str, Any]


@dataclass(frozen=True)
class InvokeMany:
    """Begin several calls, at most `concurrency` at a time. Answers with a batch from which results are collected."""

    calls: list[Invoke]
    concurrency: int


@dataclass(frozen=True)
class Collect:
    """Wait until a batch has answered, or so many seconds. Answers with the (index, Attempt) pairs that are new."""

    batch: Batch
    seconds: float


@dataclass(frozen=True)
class Compute:
    """Call a function of the author (it may be a coroutine function) and answer with its value."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


@dataclass(frozen=True)
class Aside:
    """Do something of the engine's own that may take long, such as writing a file, and answer with its value."""

    work: Callable[[], Any]


@dataclass(frozen=True)
class Local:
    """Call a `local` tool inside one transaction together with its own effect record. Answers with an Attempt."""

    work: Callable[[], Any]


@dataclass(frozen=True)
class Pause:
    """Let seconds pass; ends early when the run must stop."""

    seconds: float


@dataclass(frozen=True)
class Attempt:
    """What one call of a tool came to."""

    value: Any = None
    error: BaseException | None = None
    elapsed: float = 0.0


class Batch(Protocol):
    """Calls under way."""

    @property
    def is_done(self) -> bool:
        """Whether every result has been collected."""

    def stop(self) -> list[int]:
        """Begin no further call; what is under way answers to nobody. Returns those that never began."""


type Op = Commit | Ask | InvokeMany | Collect | Compute | Aside | Local | Pause
type Logic[T] = Generator[Op, Any, T]

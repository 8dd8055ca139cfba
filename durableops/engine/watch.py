"""What a worker's child shows its parent, in shared memory and without a system call: the step each of its runs is in
and until when, how it is doing, and whether it wants to be replaced.

The parent renews the lease and enforces hard step timeouts; a child whose interpreter is held by native code cannot.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from uuid import UUID

_LINE = struct.Struct("=Q16sqdd64sQ")
_HEAD = struct.Struct("=QdqdqqqQ")
_WHY = struct.Struct("=Qd160sQ")
_WHY_AT = 128
_LINES_AT = 512
NAME_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A step a child says it is in."""

    run_id: UUID
    fence: int
    step_id: str
    timeout: float | None
    """Seconds; None is no limit."""
    entered_at: float
    """Monotonic clock, the same for all processes of a machine."""


def shown(step_id: str) -> str:
    """What a line shows of a step's name: as much as fits."""
    return step_id.encode()[:NAME_BYTES].decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """How a child is doing, as its attendant told it last."""

    told_at: float = 0.0
    """Monotonic clock."""
    in_hand: int = 0
    loop_lag_seconds: float = 0.0
    forced_stops: int = 0
    memory_bytes: int = 0
    connections: int = 0


class Line:
    """The line of one run: written by the child, read by the parent; a torn read shows as two different counts."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._count = 0

    def enter(self, *, run_id: UUID, fence: int, step_id: str, timeout: float | None, entered_at: float) -> None:
        """Say that a step begins."""
        name = step_id.encode()[:NAME_BYTES]
        self._put(run_id.bytes, fence, -1.0 if timeout is None else timeout, entered_at, name)

    def leave(self) -> None:
        """Say that no step is under way."""
        self._put(bytes(16), 0, 0.0, 0.0, b"")

    def read(self) -> Watched | None:
        """The step, or None: there is none, or it is just being written."""
        count, run, fence, timeout, entered_at, name, again = _LINE.unpack_from(self._memory, self._at)
        if count != again or not any(run):
            return None
        return Watched(
            run_id=UUID(bytes=run),
            fence=fence,
            step_id=name.rstrip(b"\0").decode(errors="replace"),
            timeout=None if timeout < 0 else timeout,
            entered_at=entered_at,
        )

    def _put(self, run: bytes, fence: int, timeout: float, entered_at: float, name: bytes) -> None:
        self._count += 1
        _LINE.pack_into(self._memory, self._at, self._count, run, fence, timeout, entered_at, name, self._count)


class Watch:
    """The page of one child: made before the fork, so that both have it."""

    def __init__(self, *, places: int = 1) -> None:
        self._memory = mmap.mmap(-1, _LINES_AT + places * _LINE.size)
        self.lines = [Line(self._memory, _LINES_AT + n * _LINE.size) for n in range(places)]
        self._count = 0

    def steps(self) -> list[Watched]:
        """Every step the child is in."""
        return [step for line in self.lines if (step := line.read()) is not None]

    def tell(self, numbers: Numbers) -> None:
        """Say how the child is doing."""
        n = numbers
        self._count += 1
        _HEAD.pack_into(
            self._memory, 0, self._count, n.told_at, n.in_hand, n.loop_lag_seconds, n.forced_stops, n.memory_bytes,
            n.connections, self._count,
        )  # fmt: skip

    def numbers(self) -> Numbers:
        """How the child was doing when it last said so; zeros before that, or while it is being written."""
        count, told_at, in_hand, lag, forced, memory, connections, again = _HEAD.unpack_from(self._memory, 0)
        if count != again:
            return Numbers()
        return Numbers(
            told_at=told_at,
            in_hand=in_hand,
            loop_lag_seconds=lag,
            forced_stops=forced,
            memory_bytes=memory,
            connections=connections,
        )

    def ask_to_be_replaced(self, *, at: float, why: str) -> None:
        """Say that this process winds up, since when, and why. The first reason stays."""
        if self.wants_to_be_replaced() is None:
            _WHY.pack_into(self._memory, _WHY_AT, 1, at, why.encode()[:160], 1)

    def wants_to_be_replaced(self) -> tuple[float, str] | None:
        """Since when the child winds up, and why; None while it does not."""
        count, at, why, again = _WHY.unpack_from(self._memory, _WHY_AT)
        return (at, why.rstrip(b"\0").decode(errors="replace")) if count and count == again else None

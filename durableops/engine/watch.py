"""What a worker's child shows its parent: which step it is in and until when. Shared memory, no system call.

The parent renews the lease and enforces hard step timeouts; a child whose interpreter is held by native code cannot.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from uuid import UUID

_FORMAT = struct.Struct("=Q16sqd64sQ")
SIZE = mmap.PAGESIZE
NAME_BYTES = 48


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The step a child says it is in."""

    run_id: UUID
    fence: int
    step_id: str
    timeout: float
    entered_at: float
    """Monotonic clock, the same for all processes of a machine."""


def shown(step_id: str) -> str:
    """What the slot shows of a step's name: as much as fits."""
    return step_id.encode()[:NAME_BYTES].decode(errors="replace")


class Watch:
    """One slot, written by the child and read by the parent; a torn read shows as two different counts."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SIZE)
        self._count = 0

    def enter(self, *, run_id: UUID, fence: int, step_id: str, timeout: float, entered_at: float) -> None:
        """Say that a step with a timeout begins."""
        self._put(run_id.bytes, fence, timeout, step_id.encode()[:NAME_BYTES] + struct.pack("=xd", entered_at))

    def leave(self) -> None:
        """Say that no step with a timeout is under way."""
        self._put(bytes(16), 0, 0.0, b"")

    def _put(self, run: bytes, fence: int, timeout: float, tail: bytes) -> None:
        self._count += 1
        name, entered = (tail[:-9], tail[-8:]) if tail else (b"", bytes(8))
        packed = name.ljust(56, b"\0") + entered
        self._memory[: _FORMAT.size] = _FORMAT.pack(self._count, run, fence, timeout, packed, self._count)

    def read(self) -> Watched | None:
        """What the child is in, or None: nothing with a timeout, or it is just being written."""
        count, run, fence, timeout, packed, again = _FORMAT.unpack(self._memory[: _FORMAT.size])
        if count != again or not any(run):
            return None
        return Watched(
            run_id=UUID(bytes=run),
            fence=fence,
            step_id=packed[:56].rstrip(b"\0").decode(errors="replace"),
            timeout=timeout,
            entered_at=struct.unpack("=d", packed[56:])[0],
        )

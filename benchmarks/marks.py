"""Marks: what a measured step says about itself, one line each in a file; costs microseconds and no database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VARIABLE = "BENCH_MARKS"


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something that happened, on the clock of this machine."""

    kind: str
    key: str
    pid: int
    at: float


@lru_cache(maxsize=8)
def _handle(path: str, pid: int) -> int:
    # By process, so that a fork never writes through its parent's descriptor.
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def mark(kind: str, key: str) -> None:
    """Add a line. Lines of several processes do not mix: each is one short append."""
    pid = os.getpid()
    os.write(_handle(os.environ[VARIABLE], pid), f"{kind} {key} {pid} {time.time():.6f}\n".encode())


class Marks:
    """The reader's side of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        path.touch()

    def new(self) -> list[Mark]:
        """What was added since the last look."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        return [_parsed(line.decode()) for line in lines]

    def wait(self, enough: Callable[[list[Mark]], bool], *, seconds: float, pause: float = 0.01) -> list[Mark]:
        """Collect until `enough(collected)`; returns what there is when `seconds` have passed."""
        end = time.monotonic() + seconds
        seen = self.new()
        while not enough(seen) and time.monotonic() < end:
            time.sleep(pause)
            seen += self.new()
        return seen


def _parsed(line: str) -> Mark:
    kind, key, pid, at = line.split()
    return Mark(kind=kind, key=key, pid=int(pid), at=float(at))

"""Telling for certain that a process has gone: only on the machine, since the start of it, where it ran."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


@lru_cache(maxsize=1)
def machine() -> str:
    """Name the running kernel and the numbering of processes we live in; empty where that cannot be told.

    A host's name is not enough: containers share it, and it stays the same when the machine starts again.
    """
    try:
        return f"{_BOOT.read_text().strip()} {_PROCESSES.readlink()}"
    except OSError:
        return ""


def has_gone(pid: int) -> bool:
    """Whether no process with that number runs on this machine. One that was given to another process has not gone."""
    try:
        os.kill(pid, 0)
        return _is_zombie(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and only waits for its parent to take note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in ("Z", "X")
    except OSError:
        return False

"""The measured processes: real workers and upkeep, started, killed and weighed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.scratch import CHECKOUT, Place

STOP_SECONDS = 15


class Fleet:
    """Processes of one scratch installation; none outlives it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.workers: list[subprocess.Popen[bytes]] = []
        self.upkeep: list[subprocess.Popen[bytes]] = []

    def start_worker(self, *, concurrency: int | None = None, **settings: str) -> subprocess.Popen[bytes]:
        """Start one worker; `settings` are further variables of its environment."""
        places = [] if concurrency is None else ["--concurrency", str(concurrency)]
        self.workers.append(self._start("worker", *places, **settings))
        return self.workers[-1]

    def start_upkeep(self) -> subprocess.Popen[bytes]:
        """Start one upkeep process."""
        self.upkeep.append(self._start("upkeep"))
        return self.upkeep[-1]

    def start_relay(self) -> subprocess.Popen[bytes]:
        """Start one relay of the outbox."""
        self.upkeep.append(self._start("relay"))
        return self.upkeep[-1]

    def kill(self, process: subprocess.Popen[bytes]) -> float:
        """SIGKILL one process, with no chance to tidy up. Returns when, on this machine's clock."""
        at = time.time()
        process.kill()
        process.wait()
        for group in (self.workers, self.upkeep):
            with suppress(ValueError):
                group.remove(process)
        return at

    def kill_child_of(self, parent: int, child: int) -> float:
        """SIGKILL the process in which a worker runs its steps, if it still is that worker's."""
        at = time.time()
        if child in _children(parent):
            os.kill(child, signal.SIGKILL)
        return at

    def kill_all(self) -> float:
        """SIGKILL everything at once."""
        at = time.time()
        for process in [*self.workers, *self.upkeep]:
            process.send_signal(signal.SIGKILL)
        for process in [*self.workers, *self.upkeep]:
            self.kill(process)
        return at

    def stop(self) -> None:
        """End everything in an orderly way."""
        processes = [*self.workers, *self.upkeep]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill(process)
        self.workers, self.upkeep = [], []

    def _start(self, command: str, *arguments: str, **settings: str) -> subprocess.Popen[bytes]:
        with (self._place.folder / f"{command}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(CHECKOUT / "manage.py"), command, *arguments],
                env={**self._place.environment, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def fleet(place: Place) -> Iterator[Fleet]:
    """A fleet that is gone at the end."""
    made = Fleet(place)
    try:
        yield made
    finally:
        made.stop()


def peak_megabytes(pid: int) -> float | None:
    """The most memory a worker's child (else the process itself) has held; None where /proc does not tell."""
    seen = [_high_water(child) for child in _children(pid)] or [_high_water(pid)]
    known = [value for value in seen if value is not None]
    return round(max(known), 1) if known else None


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _high_water(pid: int) -> float | None:
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return int(found[1]) / 1024 if found else None


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children so far; 0 where /proc does not tell."""
    total = 0.0
    for one in [pid, *_children(pid)]:
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total

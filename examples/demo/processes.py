"""The demo's processes: those of a drill, with a supervisor that replaces what has ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from durableops.upkeep.drills.processes import Cast, Member

STOP_SECONDS = 12.0
RESTART_SECONDS = 1.0
"""A killed process is replaced after this long, as a supervisor would."""


@dataclass(kw_only=True)
class Troupe(Cast):
    """All processes of one demo."""

    grace_seconds: float = STOP_SECONDS
    last_signal: signal.Signals = signal.SIGTERM
    _kept: dict[str, Sequence[str]] = field(default_factory=dict)
    """Names of those that are replaced, and how they are started."""
    _ended_at: dict[str, float] = field(default_factory=dict)

    def keep(self, name: str, command: Sequence[str]) -> Member:
        """Start a process that is replaced whenever it has ended."""
        self._kept[name] = command
        return self.start(name, command)

    def look_after(self) -> list[str]:
        """Replace members that ended and should not have; returns the names of those replaced."""
        replaced = []
        for member in self.members:
            if member.name not in self._kept or member.process.poll() is None:
                continue
            ended_at = self._ended_at.setdefault(member.name, time.monotonic())
            if time.monotonic() - ended_at >= RESTART_SECONDS:
                _close(member)
                member.process = self.spawn(member.name, self._kept[member.name])
                del self._ended_at[member.name]
                replaced.append(member.name)
        return replaced


def _close(member: Member) -> None:
    for stream in (member.process.stdin, member.process.stdout):
        if stream:
            stream.close()

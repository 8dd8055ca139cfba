"""Starting, killing and replacing the demo's processes; what they are is said in stage.py."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STOP_SECONDS = 12.0
RESTART_SECONDS = 1.0
"""A killed worker is replaced after this long, as a supervisor would."""
PR_SET_PDEATHSIG = 1


@dataclass(kw_only=True)
class Member:
    """One process (with whatever it forks) and how to start it again."""

    name: str
    command: Sequence[str]
    restart: bool
    process: subprocess.Popen[str]
    ended_at: float | None = None


@dataclass(kw_only=True)
class Troupe:
    """All processes of one demo. Each leads a session of its own, so that it can be killed with all it forked."""

    folder: Path
    """Where it works."""
    logs: Path
    environment: Mapping[str, str]
    members: list[Member] = field(default_factory=list)

    def start(self, name: str, command: Sequence[str], *, restart: bool = False, answers: bool = False) -> Member:
        """Start a process. Its output goes to a log file, except the first lines of one that `answers` us."""
        member = Member(
            name=name, command=command, restart=restart, process=self._spawn(name, command, answers=answers)
        )
        self.members.append(member)
        return member

    def _spawn(self, name: str, command: Sequence[str], *, answers: bool) -> subprocess.Popen[str]:
        with (self.logs / f"{name}.log").open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.PIPE if answers else subprocess.DEVNULL,
                stdout=subprocess.PIPE if answers else log,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            )

    def with_pid(self, pid: int) -> Member | None:
        """The member that is this process."""
        return next((member for member in self.members if member.process.pid == pid), None)

    def kill(self, member: Member) -> None:
        """SIGKILL a process together with all it forked, as when its machine goes."""
        os.killpg(member.process.pid, signal.SIGKILL)
        member.process.wait()
        member.ended_at = time.monotonic()

    def look_after(self) -> list[str]:
        """Replace members that ended and should not have; returns the names of those replaced."""
        replaced = []
        for member in self.members:
            if not member.restart or member.process.poll() is None:
                continue
            if member.ended_at is None:
                member.ended_at = time.monotonic()
            if time.monotonic() - member.ended_at >= RESTART_SECONDS:
                member.process = self._spawn(member.name, member.command, answers=False)
                member.ended_at = None
                replaced.append(member.name)
        return replaced

    def stop(self) -> None:
        """Ask all to stop, newest first; kill what does not within its grace."""
        for member in reversed(self.members):
            if member.process.poll() is None:
                member.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(member)
            for stream in (member.process.stdin, member.process.stdout):
                if stream:
                    stream.close()


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux, what makes a child end even if the demo itself is killed; elsewhere nothing does."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

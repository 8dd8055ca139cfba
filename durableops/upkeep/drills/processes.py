"""Real processes for drills and demos: commands in process groups of their own, logs in files, ways to strike them."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durableops.upkeep.drills.checks import DrillStopped

GRACE_SECONDS = 4.0
ANSWERS_WITHIN_SECONDS = 20.0
PR_SET_PDEATHSIG = 1


@dataclass(kw_only=True)
class Member:
    """One process with whatever it forks."""

    name: str
    process: subprocess.Popen[str]
    answer: dict[str, Any] = field(default_factory=dict)
    """The JSON line it printed when it was ready, if it was asked for one."""
    _said: bytes = b""
    """What it printed and nobody has read yet."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, *, within: float) -> str:
        """The next line it prints; empty when none has come within so many seconds, or will ever come."""
        out = self.process.stdout
        assert out is not None
        end = time.monotonic() + within
        # Never through the stream's own buffer: two lines that come together would both be in it, and waiting for the
        # second one at the pipe would be waiting for nothing.
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while b"\n" not in self._said:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return ""
                if not (more := os.read(out.fileno(), 65536)):
                    return ""
                self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()


@dataclass(kw_only=True)
class Cast:
    """All processes of one drill."""

    folder: Path
    """Where they work: the checkout, or the folder that holds `manage.py`."""
    logs: Path
    environment: MutableMapping[str, str]
    members: list[Member] = field(default_factory=list)
    grace_seconds: float = GRACE_SECONDS
    """How long one that is asked to stop may take."""
    last_signal: signal.Signals = signal.SIGKILL
    """What each gets from the kernel when we are killed ourselves; only this ends one that is frozen."""

    def start(self, name: str, command: Sequence[str], *, answers: bool = False) -> Member:
        """Start a process; of one that `answers`, read the JSON line it prints when it is ready."""
        member = Member(name=name, process=self.spawn(name, command, answers=answers))
        self.members.append(member)
        if answers:
            member.answer = self._first_line(member)
        return member

    def spawn(self, name: str, command: Sequence[str], *, answers: bool = False) -> subprocess.Popen[str]:
        """Start a process without making it a member."""
        with (self.logs / f"{name}.log").open("a", encoding="utf-8") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if answers else log,
                stderr=log,
                text=True,
                start_new_session=True,  # a session is a process group too: parent and child are struck together
                preexec_fn=_die_with_parent(self.last_signal),
            )

    def manage(self, name: str, *arguments: str) -> Member:
        """Start a management command."""
        return self.start(name, [sys.executable, str(self.folder / "manage.py"), *arguments])

    def find(self, pid: int) -> Member | None:
        """The living member that is this process."""
        return next((one for one in self.members if one.pid == pid and one.process.poll() is None), None)

    def with_pid(self, pid: int) -> Member:
        """The member that is this process. Raises DrillStopped for a process the drill did not start."""
        member = self.find(pid)
        if member is None:
            raise DrillStopped(f"process {pid} holds the run and is none of this drill's.")
        return member

    def kill(self, member: Member) -> None:
        """SIGKILL a process together with all it forked, as when its machine goes."""
        os.killpg(member.pid, signal.SIGKILL)
        member.process.wait()

    def freeze(self, member: Member) -> None:
        """SIGSTOP a process together with all it forked, as when its machine is suspended."""
        os.killpg(member.pid, signal.SIGSTOP)

    def thaw(self, member: Member) -> None:
        """Let a frozen process, and all it forked, go on."""
        os.killpg(member.pid, signal.SIGCONT)

    def dismiss(self) -> None:
        """Ask all to stop, newest first; kill what does not within its grace."""
        for member in reversed(self.members):
            if member.process.poll() is None:
                member.process.terminate()
                self.thaw(member)
        deadline = time.monotonic() + self.grace_seconds
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(member)
            for stream in (member.process.stdin, member.process.stdout):
                if stream:
                    stream.close()

    def _first_line(self, member: Member) -> dict[str, Any]:
        line = member.line(within=ANSWERS_WITHIN_SECONDS)
        if not line:
            raise DrillStopped(f"{member.name} did not start; see {self.logs / member.name}.log.")
        found: dict[str, Any] = json.loads(line)
        return found


def _die_with_parent(last: signal.Signals) -> Callable[[], None] | None:
    """On Linux, what ends a process when we are killed; elsewhere nothing does."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, last)

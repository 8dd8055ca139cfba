"""What scripted steps share: marks that outlive their process, gates a test opens, and a downstream that is a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from durableops import Call, Run, State
from tests.waiting import eventually

GATE_SECONDS = 120.0


class Facts(State):
    """What a test tells a scripted run."""

    folder: str
    n: int = 0
    seconds: float = 0.0
    fails: bool = False
    when: str = ""
    what: str = ""


def mark(run: Run, what: str) -> None:
    """Add a line that says who did what; it stays, whatever becomes of the process."""
    line = {"what": what, "step": run.step_id, "attempt": run.attempt, "entry": run.entry, "pid": os.getpid()}
    append(run.state.folder, "marks", line)


def append(folder: str, name: str, line: dict[str, Any]) -> None:
    with (Path(folder) / name).open("a") as out:
        out.write(json.dumps(line) + "\n")  # one write of one short line: whole or not at all


def pass_gate(folder: str, name: str = "gate") -> None:
    """Wait until the test has opened the gate."""
    eventually(lambda: (Path(folder) / name).exists(), timeout=GATE_SECONDS, hoping_for=f"the gate {name!r}")


def deliver_to_file(call: Call, folder: str) -> dict[str, str]:
    """What the world saw: one line for each time something was sent."""
    append(folder, "world", {"key": call.key, "resource": call.resource, "attempt": call.attempt, "pid": os.getpid()})
    return {"id": call.key[:12]}

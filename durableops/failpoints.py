"""Named points at which a drill or test may stop, kill or hold a process. Nothing happens unless one is armed.

Arm them for a process with DURABLEOPS_FAILPOINTS="after_intent=kill@3,before_checkpoint=hold": the action, and which
passing of the point it happens on (the first, unless told). `after_checkpoint:ship=hold` narrows a point to one step
or resource, in whichever process it is passed. `kill` is SIGKILL to the process itself, `stop` is SIGSTOP, `hold` waits
until the file named by DURABLEOPS_FAILPOINT_RELEASE exists, `raise` raises FailpointReached.

A process that was killed is replaced and passes its point again. With DURABLEOPS_FAILPOINT_CHARGES a point happens only
where it can take the file of its name (`after_intent:ship`) away from that folder: once over all processes, and once
more for each time that somebody puts a file there again.
"""

from __future__ import annotations

import os
import signal
import time
from enum import StrEnum
from pathlib import Path

VARIABLE = "DURABLEOPS_FAILPOINTS"
RELEASE_VARIABLE = "DURABLEOPS_FAILPOINT_RELEASE"
CHARGES_VARIABLE = "DURABLEOPS_FAILPOINT_CHARGES"
ACTIONS = ("kill", "stop", "hold", "raise")


class Point(StrEnum):
    AFTER_CLAIM = "after_claim"
    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    AFTER_DISPATCH = "after_dispatch"
    AFTER_ANSWER = "after_answer"
    BEFORE_CHECKPOINT = "before_checkpoint"
    AFTER_CHECKPOINT = "after_checkpoint"
    BEFORE_FILE = "before_file"
    AFTER_FILE = "after_file"
    BEFORE_CLEANING = "before_cleaning"
    AFTER_CLEANING = "after_cleaning"
    BEFORE_FILE_REMOVED = "before_file_removed"
    AFTER_FILE_REMOVED = "after_file_removed"
    BEFORE_SUSPEND = "before_suspend"
    AFTER_BELL_TAKEN = "after_bell_taken"
    BEFORE_PARENT_NUDGED = "before_parent_nudged"
    REAPER_HOLDS_LOCKS = "reaper_holds_locks"
    AFTER_UNDO = "after_undo"
    RELAY_BEFORE_SEND = "relay_before_send"
    RELAY_AFTER_SEND = "relay_after_send"
    RELAY_AFTER_SETTLE = "relay_after_settle"
    BEFORE_BULK_ITEM_COMMITS = "before_bulk_item_commits"


class FailpointReached(Exception):
    """A point armed with `raise` was passed."""


_armed: dict[str, tuple[str, int]] = {}
_passed: dict[str, int] = {}


def arm(text: str) -> None:
    """Arm points from `name[:place]=action[@nth]` pairs. Raises ValueError that names the pair it cannot read."""
    _armed.clear()
    _passed.clear()
    for pair in filter(None, (p.strip() for p in text.split(","))):
        name, _, rest = pair.partition("=")
        action, _, nth = rest.partition("@")
        if name.partition(":")[0] not in set(Point) or action not in ACTIONS or not (nth or "1").isdigit():
            raise ValueError(
                f"failpoint {pair!r} is not name[:place]=action[@nth]; "
                f"names: {', '.join(Point)}; actions: {', '.join(ACTIONS)}."
            )
        _armed[name] = (action, int(nth or 1))


def reach(point: Point, *places: str) -> None:
    """Pass `point`, in these places if the caller knows them: a step, a resource."""
    if _armed:
        for name in (point.value, *(f"{point}:{place}" for place in places)):
            if name in _armed:
                _pass(name)


def _pass(name: str) -> None:
    action, nth = _armed[name]
    folder = os.environ.get(CHARGES_VARIABLE)
    if folder and not (Path(folder) / name).exists():
        return  # passings without a charge are not counted
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != nth:
        return
    if folder:
        _passed[name] = 0
        try:
            (Path(folder) / name).unlink()
        except FileNotFoundError:
            return  # another process was quicker
    if action == "raise":
        raise FailpointReached(name)
    if action == "hold":
        while not Path(os.environ[RELEASE_VARIABLE]).exists():
            time.sleep(0.01)
        return
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


arm(os.environ.get(VARIABLE, ""))

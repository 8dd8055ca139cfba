"""The verbs that can be done to many runs, by name. Whoever has one registers it; who may do it is asked elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from durableops.engine import commands
from durableops.engine.commands import Done
from durableops.errors import InputRefused
from runs.states import OPEN, State, sources


def _no_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    if given:
        raise InputRefused(f"{', '.join(sorted(given))}: this bulk action takes no arguments.")
    return {}


MOST_RUNS = 100_000
"""How many runs one bulk action may hold."""


@dataclass(frozen=True, kw_only=True)
class BulkVerb:
    """One verb. `apply` is called for each run in a transaction of its own, with tenant, actor, reason, arguments."""

    name: str
    label: str
    apply: Callable[..., Done]
    """As the functions of `engine.commands`: atomic in itself, raises a DurableOpsError when it refuses."""
    fits: str
    """SQL condition on the run `r`: whether it would not be refused, as things are now. For the preview only."""
    wants: str
    """Which runs it fits, in words."""
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = _no_arguments
    """What was given as arguments, as the JSON that is stored. Raises InputRefused."""
    arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """The keyword arguments of `apply` that the stored JSON means."""
    danger: bool = False
    offered: bool = False
    """Whether it is offered for any runs of the list; others are begun where their arguments are chosen."""
    ready: Callable[[Mapping[str, Any]], bool] = lambda arguments: True
    """Whether this process can do it, given the stored arguments; what it cannot is left to one that can."""
    most: int = MOST_RUNS
    """How many runs one action may hold."""
    guard: str = ""
    """Name of the guard's verb, where it may send something again: each run's plan is kept with the preview, and
    `apply` is given its `plan_hash`."""


def _in(states: frozenset[State] | list[str]) -> str:
    return f"r.state IN ({', '.join(f"'{state}'" for state in sorted(states))})"


_verbs: dict[str, BulkVerb] = {}


def register(verb: BulkVerb) -> BulkVerb:
    """Make a verb known. Once for each name."""
    if verb.name in _verbs:
        raise ValueError(f"bulk verb {verb.name!r} is registered already.")
    _verbs[verb.name] = verb
    return verb


def verb(name: str) -> BulkVerb:
    """The verb with this name. Raises InputRefused."""
    found = _verbs.get(name)
    if found is None:
        raise InputRefused(f"there is no bulk action {name[:80]!r}; there are: {', '.join(sorted(_verbs))}.")
    return found


def verbs() -> tuple[BulkVerb, ...]:
    """Every verb, in the order in which they were registered."""
    return tuple(_verbs.values())


register(BulkVerb(name="pause", label="Pause", apply=commands.pause, fits=f"{_in(OPEN)} AND NOT r.paused",
                  wants="open runs that are not paused", offered=True))  # fmt: skip
register(BulkVerb(name="resume", label="Resume", apply=commands.resume, fits="r.paused",
                  wants="paused runs", offered=True))  # fmt: skip
register(BulkVerb(name="retry", label="Retry", apply=commands.retry, fits=_in(sources("reopen")),
                  wants="failed, timed out and exhausted runs", guard="retry", offered=True))  # fmt: skip


def _what_was_done(given: Mapping[str, Any]) -> dict[str, Any]:
    done = given.get("done", commands.WHAT_WAS_DONE[0])
    if set(given) - {"done"} or done not in commands.WHAT_WAS_DONE:
        raise InputRefused(
            f"a bulk cancel takes `done`, one of {', '.join(commands.WHAT_WAS_DONE)}, and nothing else.",
            path="/arguments",
        )
    return {"done": done}


register(BulkVerb(name="cancel", label="Cancel", apply=commands.cancel, read=_what_was_done,
                  fits=f"{_in(OPEN)} AND NOT r.cancel_requested",
                  wants="open runs that were not asked to stop yet", danger=True, offered=True))  # fmt: skip

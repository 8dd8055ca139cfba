"""What a migration is told and what it may answer: the new state, and where everything else of the run went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


class _Keep:
    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = _Keep()
"""Leaves the cursor of a page loop as it is."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run stands, in the words of the version its state is of."""

    step: str
    """The step it goes on with."""

    cursor: Any = None
    """Where its page loop goes on; None outside of one."""

    waits: tuple[tuple[str, str], ...] = ()
    """Kind and name of what it waits for, or was answered, in that step."""

    planned: tuple[str, ...] | None = None
    """The steps that are still ahead, from the present one on, of a run that made its own plan (`run.replan`)."""

    unsettled: tuple[tuple[str, str], ...] = ()
    """Step and tool of its calls without an outcome."""


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """The new state, with what else is called or stands differently in the new version.

    Whatever is not named keeps its name. A migration that changes only the state may return it alone.
    """

    state: Mapping[str, Any]
    """The new state, as plain JSON."""

    at: str | None = None
    """The step to go on with, by its new id; None: the present one, by its new id."""

    cursor: Any = KEEP
    """Where the page loop of that step goes on; None is its beginning."""

    steps: Mapping[str, str] = field(default_factory=dict)
    """Old step id to new step id."""

    planned: Sequence[str] | None = None
    """The steps ahead, from the one to go on with, of a run that made its own plan; None: those it has, by their new
    ids. Nothing for a run that follows the declared plan."""

    waits: Mapping[str, str | None] = field(default_factory=dict)
    """Old name of an awaited event, approval or file to its new one; None gives the wait up."""

    decisions: Mapping[str, str] = field(default_factory=dict)
    """Old name of a decision to its new one."""

    effects: Mapping[str, str | None] = field(default_factory=dict)
    """Old tool (`tool` or `step/tool`) to the new one, or to itself. Required for every tool with a call that has no
    outcome; None leaves calls that have one behind, so that they answer nothing any more."""

"""Turns at legacy systems, for whoever changes who is next: the run that may go is woken in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs import doubting, queues
from runs.fenced import Written
from runs.transitions import Cursor


@dataclass
class Turn:
    """One queued call that asks whether it is its turn, as part of a commit of its run's holder."""

    system: str
    effect_id: int
    run_id: UUID
    seconds: float
    """How long it may then be sent, and how long its answer may take after that."""
    taken: bool = False
    holder: Any = None

    def take(self, cursor: Cursor, written: Written) -> None:
        """Ask, with the run's row locked. A commit whose answer was lost asks again."""
        self.taken, self.holder = False, None
        if written.may_send:
            self.taken, self.holder = queues.dispatch(
                cursor, system=self.system, effect_id=self.effect_id, seconds=self.seconds
            )

    @property
    def held_by_own_run(self) -> bool:
        """Whether another call of the same run is on the wire: its step is in the middle of it, and waits in it."""
        return self.holder is not None and self.holder[1] == self.run_id and self.holder[2] == "intended"


def pass_on(cursor: Cursor, systems: Iterable[str]) -> list[UUID]:
    """Let whoever is next at these systems go. Returns the runs that were woken; somebody should ring for them."""
    return [run for run in (queues.wake_next(cursor, system) for system in sorted(set(systems))) if run is not None]


def wake_askers(cursor: Cursor, effect_id: int) -> list[UUID]:
    """Wake the runs that ask for the same thing as another one did, and wait for what became of it."""
    return queues.wake_askers(cursor, effect_id)


def look_once_more(cursor: Cursor, run_id: UUID, asked: str) -> bool:
    """A run went to wait for what another one does: wake it if that has an outcome by now, or was left meanwhile."""
    return queues.wake_asker(cursor, run_id, asked)


def let_others_go(cursor: Cursor, runs: Sequence[UUID]) -> list[UUID]:
    """These runs cannot take their turns just now, or can again: let whoever is next where they stand go."""
    return pass_on(cursor, queues.systems_of(cursor, list(runs)))


def leave_effects(cursor: Cursor, runs: Sequence[UUID], *, ended: bool, cause: str, because: str) -> int:
    """`runs.doubting.leave_effects`, and whoever stood behind them in a queue goes on."""
    systems = queues.systems_of(cursor, list(runs)) if runs else []
    left = doubting.leave_effects(cursor, runs, ended=ended, cause=cause, because=because)
    pass_on(cursor, systems)
    for effect_id, scope in left:
        if scope == "tenant":
            wake_askers(cursor, effect_id)
    return len(left)

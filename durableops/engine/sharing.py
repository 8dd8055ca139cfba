"""One effect for a whole tenant, whoever asks: the first run does it, the others wait for what becomes of it.

They look for a moment, then leave their worker and are woken. If the first one is gone, exactly one other takes over,
with the same key; a conflict is a conflict also while the first is still at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from durableops.clock import uptime
from durableops.effects.idempotency import Prepared
from durableops.engine.checks import check_may_go_on
from durableops.engine.hand import Hand
from durableops.engine.known import KnownEffect
from durableops.engine.ops import Commit, Logic, Pause
from durableops.engine.records import load_slots
from durableops.engine.suspending import Suspend, wait_row
from runs import queues, sharing
from runs.fenced import Written
from runs.transitions import Cursor

LOOKS_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Pauses between the looks at a call of another run, before this one goes to wait."""
IN_PROGRESS = ("queued", "intended", "in_doubt")

type Shared = dict[int, tuple[Prepared, KnownEffect]]


def is_anothers(hand: Hand, known: KnownEffect) -> bool:
    """Whether another run is at it, or was, and nothing came of it yet."""
    return known.run_id != hand.run_id and known.state in IN_PROGRESS


def look(hand: Hand, shared: Shared) -> Logic[dict[int, KnownEffect]]:
    """Wait until something became of at least one. Answers with those, as they are now: what was taken over is ours.

    Leaves the step when it takes longer than a moment.
    """
    for pause in (*LOOKS_SECONDS, None):
        check_may_go_on(hand)
        found = yield from _look_once(hand, shared)
        if found:
            return found
        if pause is not None:
            yield Pause(pause)
    prepared, known = next(iter(shared.values()))
    raise Suspend(wait_row("turn", prepared.tool.name, prepared.slot[:32], correlation=queues.asked(known.id)))


def _look_once(hand: Hand, shared: Shared) -> Logic[dict[int, KnownEffect]]:
    now = yield from load_slots(hand, [prepared.slot for prepared, _ in shared.values()])
    found: dict[int, KnownEffect] = {}
    for n, (prepared, _) in shared.items():
        known = now[prepared.slot]
        if is_anothers(hand, known) and _is_free(prepared, known):
            taking = _TakingOver(hand, known)
            yield Commit(hand.write(), also=taking.take)
            known = (yield from load_slots(hand, [prepared.slot]))[prepared.slot] if taking.taken else known
        if not is_anothers(hand, known):
            found[n] = known
    return found


def _is_free(prepared: Prepared, known: KnownEffect) -> bool:
    """Whether it looks as if it could be taken over; the statement that does it asks again."""
    remembered = known.window_closes is None or uptime() < known.window_closes
    return prepared.tool.safety == "keyed" and remembered and (known.state == "in_doubt" or known.owner == "gone")


@dataclass
class _TakingOver:
    hand: Hand
    known: KnownEffect
    taken: bool = False

    def take(self, cursor: Cursor, written: Written) -> None:
        self.taken = written.may_send and sharing.take_over(
            cursor, effect_id=self.known.id, run_id=self.hand.run_id, step_id=self.hand.step.id,
            from_run=self.known.run_id, fence=self.known.fence,
        )  # fmt: skip

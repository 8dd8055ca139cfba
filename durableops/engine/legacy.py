"""Calls to systems that deduplicate nothing: each stands in its system's queue, goes alone, and is sent once.

Its place is committed before anything else. Then its run asks whether it is its turn, as part of a commit; if not, it
waits, and whoever frees the system wakes the next. A call that was on the wire and has no outcome is in doubt at once,
and its doubt holds the queue. A crash re-sends nothing: what had no turn yet waits for it again.
"""

from __future__ import annotations

from typing import Any

from durableops import failpoints
from durableops.clock import uptime
from durableops.effects.idempotency import Prepared
from durableops.engine.checks import check_may_go_on
from durableops.engine.hand import Hand
from durableops.engine.ops import Commit, Logic, Pause
from durableops.engine.queues import Turn
from durableops.engine.sending import Pending, identity_of, send_all
from durableops.engine.suspending import Suspend, wait_row
from durableops.errors import EffectInDoubt

OWN_CALL_SECONDS = 0.1
"""How often a task of a step asks again while another task of it has its call on the wire."""


def queue(hand: Hand, fresh: dict[int, Prepared]) -> Logic[dict[str, int]]:
    """Commit the places of calls that have none. Answers with slot to effect; a slot that is missing was taken."""
    rows = [_place(hand, n, prepared) for n, prepared in fresh.items()]
    written = yield Commit(hand.write(queued=rows))
    if not written.may_send:
        check_may_go_on(hand)
    failpoints.reach(failpoints.Point.AFTER_INTENT, hand.step.id, next(iter(fresh.values())).resource)
    found: dict[str, int] = written.intents
    return found


def send_in_turn(hand: Hand, pending: dict[int, Pending]) -> Logic[None]:
    """Send one after the other, each when it is its turn; leaves the step while it is not.

    Raises EffectInDoubt for the first whose outcome is unknown: it holds the queue, and those behind it keep their
    places.
    """
    for one in pending.values():
        hand.holds[one.effect_id or 0] = one.prepared.tool.queue
    for n, one in pending.items():
        yield from _await_turn(hand, one)
        yield from send_all(hand, {n: one}, concurrency=1)
        if isinstance(one.error, EffectInDoubt):
            yield Commit(hand.write())
            raise one.error
    if pending:
        yield Commit(hand.write())


def _await_turn(hand: Hand, one: Pending) -> Logic[None]:
    """Put it on the wire with the commit that records the outcome of the one before."""
    tool, effect_id = one.prepared.tool, one.effect_id or 0
    turn = Turn(system=tool.queue, effect_id=effect_id, run_id=hand.run_id, seconds=tool.timeout)
    while True:
        check_may_go_on(hand)
        began = uptime()
        yield Commit(hand.write(), also=turn.take)
        if turn.taken:
            one.send_before = began + tool.timeout
            hand.under_way[effect_id] = one
            failpoints.reach(failpoints.Point.AFTER_DISPATCH, hand.step.id, one.prepared.resource)
            check_may_go_on(hand)
            return
        check_may_go_on(hand)
        if not turn.held_by_own_run:
            raise Suspend(wait_row("turn", tool.queue, ""))
        yield Pause(OWN_CALL_SECONDS)


def _place(hand: Hand, n: int, prepared: Prepared) -> dict[str, Any]:
    tool = prepared.tool
    return {
        "n": n,
        **identity_of(hand, prepared),
        "system": tool.queue,
        "remind_seconds": tool.remind_after and tool.remind_after.total_seconds(),
        "escalate_seconds": tool.escalate_after and tool.escalate_after.total_seconds(),
    }

"""The attendant of a worker's child: a thread that looks after the runs in hand once a second, and tells the parent.

A person's cancel or pause, a deadline or a lost fence reaches a running step through it. An async step is cancelled, a
plain one leaves at its next `run.` call; one that does neither within its grace is fenced off, and the process, which
cannot stop it, asks to be replaced.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import django_side, looping
from durableops.engine.checks import WorkerStopping, stop_reason
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.forcing import force_off
from durableops.engine.hand import Hand
from durableops.engine.in_hand import Held, InHand
from durableops.engine.pool import Pool
from durableops.engine.watch import Numbers, Watch
from durableops.errors import StepTimeout
from runs.fenced import SWITCHED_OFF
from runs.transitions import record_event

logger = logging.getLogger("durableops.attendant")

LOOK_SECONDS = 1.0
IDLE_LOOKS = 10
"""With nothing in hand, every so many looks are enough to find what stands under our name all the same."""
LAG_SECONDS = 1.0
"""A loop that answers later than this is blocked."""

_OURS = f"""
SELECT r.id, r.fence, r.cancel_requested, r.paused OR {SWITCHED_OFF.format(run="r")},
    extract(epoch FROM r.deadline_at - now())::float8
FROM runs_run r WHERE r.worker_id = %s AND r.state = 'running'"""


class Attendant:
    """One for each child."""

    def __init__(
        self, *, in_hand: InHand, pool: Pool, wind_up: Callable[[str], None], watch: Watch | None = None,
        name: str = "attendant",
    ) -> None:  # fmt: skip
        self._in_hand = in_hand
        self._pool = pool
        self._wind_up = wind_up
        self._watch = watch
        # Of its own: it must get through when all others wait for locks.
        self._database = Database(name=name)
        self._pulse = looping.Pulse()
        self._blocked: tuple[Hand, float] | None = None
        self._strays: dict[UUID, int] = {}
        self._looks = 0
        self._over = threading.Event()
        self.forced_stops = 0
        self.loop_lag_seconds = 0.0

    def start(self) -> None:
        """Look once a second, on a thread of its own, for the life of the process."""
        threading.Thread(target=self._attend, name="attendant", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._database.close()

    def _attend(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self.look()
            except ConnectionLost as lost:
                logger.warning("the runs in hand could not be looked at: %s", str(lost).splitlines()[0])
            except Exception:
                # Without it nothing stops a step any more; the process would go on and look healthy.
                logger.exception("the attendant failed; its worker is replaced")
                self._wind_up("its attendant failed")
                return

    def look(self) -> None:
        """Look once: at the loop, at what people and clocks say of each run, and at what did not stop in time."""
        self._look_at_loop()
        self._tell()
        held = self._in_hand.held()
        self._looks += 1
        if held or self._looks % IDLE_LOOKS == 0:
            self._ask_record(held)
        if held:  # runs that follow one another take the next one without looking
            self._in_hand.offer.keep(self._database)
        for one in held:
            if one.hand is not None and not one.abandoned:
                self._see_to(one, one.hand)

    def _ask_record(self, held: list[Held]) -> None:
        rows = {row[0]: row[1:] for row in self._database.fetch(_OURS, [self._in_hand.worker_id])}
        for one in held:
            if one.hand is not None and one.hand.in_step:
                _note(one.hand, rows.get(one.hand.run_id))
        self._hand_back_strays({run_id: row[0] for run_id, row in rows.items()})

    def _hand_back_strays(self, ours: dict[UUID, int]) -> None:
        """Two looks found them under our name and in no place: the answer to their claim was lost."""
        claims = [claim for one in self._in_hand.held() for claim in (one.claimed, one.following) if claim is not None]
        known = {claim.run_id for claim in claims}
        strays = {run_id: fence for run_id, fence in ours.items() if run_id not in known}
        if any(self._strays.get(run_id) == fence for run_id, fence in strays.items()):
            self._in_hand.release_unheld(self._database, why="it stood under a worker that did not hold it")
            strays = {}
        self._strays = strays

    def _see_to(self, held: Held, hand: Hand) -> None:
        """Ask a step to stop if something says so; take the run away from one that was asked and goes on."""
        if not hand.in_step:
            return
        if hand.told is None:
            reason = stop_reason(hand)
            if reason is not None:
                # At its timeout an async step is cut off by its own clock; a second cut would end its cleaning up.
                hand.tell_to_stop(reason, cancel=not isinstance(reason, StepTimeout))
            return
        # A step timeout is the parent's, which also reaches a process that does not answer; so is the end of a stop.
        if isinstance(hand.told, StepTimeout | WorkerStopping):
            return
        if monotonic() - hand.told_at > get_conf().step_grace_seconds and force_off(self._database, hand, hand.told):
            self.forced_stops += 1
            self._in_hand.abandon(held)
            logger.error(
                "step %r of run %s did not stop (%s); the run was taken from it and this process is replaced",
                hand.step.id, hand.run_id, hand.told,
            )  # fmt: skip
            self._wind_up(f"step {hand.step.id!r} of run {hand.run_id} did not stop")

    def _look_at_loop(self) -> None:
        """Name the step that keeps the loop from answering, once for each entry."""
        self.loop_lag_seconds = lag = self._pulse.lag()
        if lag < LAG_SECONDS or not looping.is_running():
            return
        hand = looping.at_work()
        if hand is None or self._blocked == (hand, hand.entered_at):
            return
        self._blocked, where = (hand, hand.entered_at), looping.where(hand)
        logger.error(
            "step %r of run %s has blocked the event loop for %.1f s, at %s", hand.step.id, hand.run_id, lag, where
        )
        with self._database.cursor() as cursor:
            record_event(
                cursor,
                hand.run_id,
                "loop_blocked",
                reason=f"step {hand.step.id!r} kept the worker's event loop from answering for {lag:.1f} s; "
                "every other async step of the process stood still.",
                step_id=hand.step.id,
                attempt=hand.attempt,
                fence=hand.fence,
                worker_id=hand.worker_id,
                data={"seconds": round(lag, 1), "where": where},
            )

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch.tell(self.numbers())

    def numbers(self) -> Numbers:
        """How this process is doing."""
        return Numbers(
            told_at=monotonic(),
            in_hand=len(self._in_hand.held()),
            loop_lag_seconds=round(self.loop_lag_seconds, 3),
            forced_stops=self.forced_stops,
            memory_bytes=resident_bytes(),
            connections=self._pool.open_connections + int(self._database.is_open) + django_side.open_connections(),
        )


def _note(hand: Hand, row: tuple[Any, ...] | None) -> None:
    """Tell a hand what the record says of its run. What a commit's own answer says later counts as well."""
    if row is None:
        hand.lost = True
        return
    _, cancelled, paused, deadline_left = row
    hand.cancel_requested = hand.cancel_requested or cancelled
    hand.pause_requested = hand.pause_requested or paused
    hand.deadline = None if deadline_left is None else monotonic() + deadline_left


def resident_bytes() -> int:
    """Resident memory of this process; 0 where /proc does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")

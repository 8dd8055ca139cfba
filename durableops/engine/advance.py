"""Moving one claimed run, step by step, to its next resting place."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from uuid import UUID

import psycopg

from durableops import failpoints
from durableops.checkpoints import codec
from durableops.checkpoints.compatibility import Park
from durableops.checkpoints.states import decode_state, encode_and_read_back
from durableops.clock import monotonic
from durableops.conf import get_conf
from durableops.engine import (
    admission,
    budgets,
    commit,
    django_side,
    endings,
    looping,
    made_plans,
    resuming,
    step_timeouts,
    stored_states,
)
from durableops.engine.checks import give_way, stop_reason, wants_other_place
from durableops.engine.context import AsyncRun, SyncRun
from durableops.engine.database import Database
from durableops.engine.drivers import AsyncDriver, SyncDriver
from durableops.engine.hand import Hand, Stopping
from durableops.engine.in_hand import Held
from durableops.errors import (
    CompatibilityError,
    ControlSignal,
    EffectConflict,
    FenceLost,
    StepTimeout,
)
from runs.claiming import Claimed
from runs.fenced import CheckpointRow
from runs.transitions import TransitionRefused

logger = logging.getLogger("durableops.advance")


def advance(
    database: Database,
    claimed: Claimed,
    *,
    worker_id: UUID,
    stopping: Stopping,
    held: Held | None = None,
) -> None:
    """Go on with a claimed run until it rests: finished, waiting, handed back, parked, or lost to a newer claim.

    With `held`, its place in this process, the commit that finishes it also puts the next run there.
    """
    failpoints.reach(failpoints.Point.AFTER_CLAIM, claimed.step_id)
    try:
        verdict = resuming.decide(database, claimed)
        if isinstance(verdict, Park):
            resuming.migrate_or_park(database, claimed, verdict)
            return
        try:
            definition, plan = verdict
            hand = Hand(claimed, definition, worker_id=worker_id, stopping=stopping)
            hand.made_plan = plan
        except CompatibilityError as error:
            resuming.park(database, claimed, Park(reason_code="state_unreadable", reason=str(error)))
            return
    except TransitionRefused:
        return
    if held is not None:
        hand.held, held.hand = held, hand
    try:
        while _one_step(database, hand):
            pass
    except (psycopg.DataError, psycopg.IntegrityError, EffectConflict) as error:
        # The database refused what no check of ours did. The step that said it fails, not the worker.
        endings.fail_attempt(database, hand, error)
    except FenceLost as lost:
        endings.reject_late_result(database, hand, lost)


def _one_step(database: Database, hand: Hand) -> bool:
    """Enter the present step once. True when the run is still in hand and goes on."""
    try:
        driver = SyncDriver(database, hand)
        ending = stop_reason(hand) or driver.run(give_way(hand))
        if ending is not None:
            return endings.leave(database, hand, ending)
        if hand.killed_and_goes_on:
            return _commit_step(database, hand, hand.step.default)
        driver.run(admission.admit_use(hand))
        driver.run(budgets.enter(hand))
        value = _enter(database, hand)
    except FenceLost:
        raise
    except ControlSignal as signal:
        return _leave(database, hand, signal)
    except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:  # noqa: BLE001 - the author's code
        if hand.leaving is not None:
            return _leave(database, hand, hand.leaving)
        return endings.fail_attempt(database, hand, error)
    late = hand.step_deadline
    if late is not None and monotonic() > late:
        # Whatever swallowed the signal: a result that comes after the timeout is no result.
        return _leave(database, hand, StepTimeout("its result came too late and was refused.", late=True))
    step_timeouts.tell_extension(hand)
    if hand.leaving is not None:
        # The code caught the signal and went on. A handler that is too broad must not skip a person's approval.
        return _leave(database, hand, hand.leaving)
    return _commit_step(database, hand, value)


def _leave(database: Database, hand: Hand, signal: ControlSignal) -> bool:
    """Write what `signal` means. True when the run goes on all the same: its step has a default for its timeout."""
    if not isinstance(signal, StepTimeout) or hand.step.on_timeout != "continue":
        return endings.leave(database, hand, signal)
    hand.replan = None
    following = hand.following
    endings.tell_step_timeout(hand, signal, next_state="running" if following else "succeeded")
    # What the entry had made of the state is as little believed as what it would have returned.
    hand.state = decode_state(hand.definition.state, hand.state_json)
    hand.drop_messages()
    return _commit_step(database, hand, hand.step.default)


def _enter(database: Database, hand: Hand) -> Any:
    """Call the step's function from its top."""
    step = hand.step

    def input_json() -> str:
        return resuming.input_of(database, hand.run_id, hand.definition)

    line = hand.held.line if hand.held is not None else None
    if line is not None:
        line.enter(
            run_id=hand.run_id, fence=hand.fence, step_id=step.id, timeout=step.longest, entered_at=hand.entered_at
        )
    hand.in_step = True
    try:
        if not step.is_async:
            return step.function(SyncRun(hand, SyncDriver(database, hand), input_json))
        run = AsyncRun(hand, AsyncDriver(database, hand), input_json)
        return looping.run(_limited(step.function(run), hand))
    finally:
        hand.leave_entry()
        if line is not None:
            line.leave()
        django_side.let_go()
        budgets.leave(database, hand)


async def _limited(coroutine: Any, hand: Hand) -> Any:
    """Await an async step, cut off at its timeout, or when it is told to stop from outside."""
    hand.task = looping.here(hand)
    try:
        async with asyncio.timeout(hand.step.longest) as clock:
            return await coroutine
    except TimeoutError:
        if clock.expired():
            raise StepTimeout(f"step {hand.step.id!r} ran longer than {hand.step.longest:g} s.") from None
        raise
    except asyncio.CancelledError:
        if hand.told is not None:
            raise hand.told from None
        raise
    finally:
        hand.task = None


def _commit_step(database: Database, hand: Hand, value: Any) -> bool:
    """Commit the step: output, state and everything pending, with the finish if it was the last one."""
    step, following = hand.step, hand.following
    limit = get_conf().payload_max_bytes
    try:
        output = None if value is None else codec.dumps(value, what=f"output of step {step.id!r}", max_bytes=limit)
        state_json, state = encode_and_read_back(hand.state, max_bytes=limit)
        stored = stored_states.to_store(hand, state_json)
    except Exception as error:  # noqa: BLE001 - encoding runs the author's own field code
        return endings.fail_attempt(database, hand, error)
    row = CheckpointRow(
        kind="step" if following else "finish",
        step_id=step.id,
        next_step=following.id if following else "",
        state=stored,
        output=output,
        output_hash="" if output is None else codec.hash_hex(output),
        effects_through=hand.newest_effect,
        entry=hand.entry,
        attempt=hand.attempt,
        elapsed=monotonic() - hand.entered_at,
        after_pages=hand.cursor is not None,
        plan=made_plans.row_of(hand),
    )
    if row.plan is not None:
        hand.event("replan", reason=hand.replan_why, data={"steps": json.loads(row.plan.steps)})
    failpoints.reach(failpoints.Point.BEFORE_CHECKPOINT, step.id)
    if following is None:
        return _finish(database, hand, row)
    if (elsewhere := wants_other_place(hand, following)) is not None:
        return endings.leave(database, hand, elsewhere, checkpoint=row)
    given_back = "" if hand.resource and not following.uses else None
    commit.execute(database, hand, hand.write(checkpoint=row, resource=given_back))
    hand.resource = following.uses
    failpoints.reach(failpoints.Point.AFTER_CHECKPOINT, step.id)
    hand.advance_to(following, state_json=state_json, state=state)
    return True


def _finish(database: Database, hand: Hand, row: CheckpointRow) -> bool:
    """Commit the last step and the end of the run, and take the next run with the same commit where that is wanted."""
    hand.event("succeed", moves=True)
    write = hand.write(checkpoint=row, transition="succeed", error=("", "", ""))
    if hand.held is not None and hand.stopping.since is None:
        commit.execute_and_claim(database, hand, write, hand.held)
    else:
        commit.execute(database, hand, write)
    failpoints.reach(failpoints.Point.AFTER_CHECKPOINT, hand.step.id)
    endings.finished(database, hand)
    return False

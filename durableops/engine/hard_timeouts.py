"""Ending a step that does not end itself: its run is taken away first, then its process is killed."""

from __future__ import annotations

import random

from durableops.authoring import registry
from durableops.clock import monotonic
from durableops.engine import questions, retries
from durableops.engine.hand import GOES_ON
from durableops.engine.queues import leave_effects
from durableops.engine.watch import Watched, shown
from durableops.errors import StepTimeout, WorkflowNotFound
from durableops.limits.clocks import Clock, Firing, Phase
from runs.states import TRANSITIONS
from runs.transitions import Cursor, TransitionRefused, fire, record_event

_LOOK = """
SELECT r.workflow, p.version, r.step_id, r.step_attempts, r.worker_id, r.cancel_requested
FROM runs_run r JOIN runs_workflow_plan p ON p.id = r.plan_id
WHERE r.id = %s AND r.fence = %s AND r.state = 'running' FOR NO KEY UPDATE OF r"""

_CALLED = """
SELECT tool FROM runs_effect WHERE run_id = %s AND fence = %s AND state = 'intended' AND safety <> 'outbox'
ORDER BY id DESC LIMIT 1"""


def take_away(cursor: Cursor, watched: Watched) -> bool:
    """Take the run from a step past its timeout and grace. False when it is not held that way any more.

    Needs a transaction. The step's late result, should one come, meets a run that is not running under its fence.
    """
    cursor.execute(_LOOK, [watched.run_id, watched.fence])
    row = cursor.fetchone()
    # The record has the step's whole name; what the child shows may be cut off.
    if row is None or shown(row[2]) != watched.step_id:
        return False
    workflow, version, step_id, attempts, worker_id, cancelled = row
    policy, verdict = _verdict(workflow, version, step_id, attempts + 1)
    event = "stop" if cancelled else _move(policy, verdict)
    cursor.execute(_CALLED, [watched.run_id, watched.fence])
    called = cursor.fetchone()
    firing = Firing(
        clock=Clock.STEP_TIMEOUT,
        limit_seconds=watched.timeout,
        trigger=f"step {step_id!r} did not end by itself and its process was killed",
        elapsed_seconds=monotonic() - watched.entered_at,
        phase=Phase.CALLING if called else Phase.COMPUTING,
        next_state=TRANSITIONS[event].target,
        whom=f"tool {called[0]}" if called else "",
    )
    record_event(
        cursor, watched.run_id, "step_timeout", reason=firing.trigger, step_id=step_id, attempt=attempts + 1,
        fence=watched.fence, worker_id=worker_id, data=firing.as_data(),
    )  # fmt: skip
    message = f"step {step_id!r} ran longer than {watched.timeout:g} s and did not stop"
    sets = {
        "step_attempts": attempts + 1,
        "error_class": "durableops.errors.StepTimeout",
        "error_message": message,
        "error_fingerprint": "step_timeout",
        "wake_cause": GOES_ON if policy == "continue" else "step_timeout",
        "wake_detail": message,
    }
    try:
        fire(
            event,
            watched.run_id,
            using=cursor,
            fence=watched.fence,
            delay=verdict.delay if isinstance(verdict, retries.RetryAt) else 0.0,
            actor="supervisor",
            reason=message,
            sets=sets,
        )
    except TransitionRefused:
        return False
    if event == "ask":
        questions.put(cursor, watched.run_id, firing.as_data(), was="running")
    ended = event not in ("kill_step", "ask")
    leave_effects(cursor, [watched.run_id], ended=ended, cause="step_timeout", because=f"{message}.")
    return True


def _move(policy: str, verdict: retries.RetryAt | retries.GiveUp) -> str:
    """The move of `states.TRANSITIONS` that the step's policy asks for."""
    moves = {"fail": "give_up", "cancel": "stop", "continue": "kill_step", "ask": "ask"}
    return moves.get(policy, "kill_step" if isinstance(verdict, retries.RetryAt) else "give_up")


def _verdict(workflow: str, version: int, step_id: str, failed: int) -> tuple[str, retries.RetryAt | retries.GiveUp]:
    """The step's policy, and what its Retry says where that counts."""
    try:
        step = registry.workflow(workflow, version).step(step_id)
    except (WorkflowNotFound, KeyError):
        return "retry", retries.GiveUp(why="its step is unknown here")
    if step.on_timeout == "continue":
        return step.on_timeout, retries.RetryAt(delay=0.0)
    return step.on_timeout, retries.decide(step.retry, failed, StepTimeout(), random.Random())  # noqa: S311 - jitter

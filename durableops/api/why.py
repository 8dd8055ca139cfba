"""Why a run is where it is and what will wake it, as codes with one plain sentence; from facts, nothing here queries.

The console tells the same facts at length, as a page (`console.story`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from durableops.api.schemas import Gate, Why
from durableops.engine.gates import Before
from durableops.masking import mask_text
from runs.models import PauseSwitch, Run, Wait, Worker
from runs.states import State

_ANSWERS = {
    "approval": "a person's decision",
    "event": "the event's arrival",
    "file": "the file's arrival",
    "time": "the clock",
    "poll": "its next turn",
    "children": "the last child to end",
    "turn": "its turn at that system",
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the answer is made from."""

    run: Run
    now: datetime
    waits: Sequence[Wait] = ()
    """Open waits, newest first."""
    switches: Sequence[PauseSwitch] = ()
    workers: Sequence[Worker] = ()
    """Living workers; asked for only while the run is queued."""
    before: Before = field(default_factory=Before)
    """What stands before it while it is queued."""


def tell(facts: Facts) -> Why:
    """The answer for a run in any state."""
    code, detail, wakes_at = _reason(facts)
    return Why(code=code, detail=detail, since=facts.run.state_since, wakes_at=wakes_at, gates=_gates(facts))


def _reason(facts: Facts) -> tuple[str, str, datetime | None]:
    run = facts.run
    match run.state:
        case State.QUEUED if run.due_at is not None and run.due_at > facts.now:
            return "queued.not_due", mask_text(run.wake_detail) or "it is not due yet; the clock wakes it", run.due_at
        case State.QUEUED:
            return "queued.ready", "the next free worker takes it", None
        case State.RUNNING if run.cancel_requested:
            return "running.cancelling", f"{run.cancel_requested_by} asked it to stop; it ends at its next commit", None
        case State.RUNNING:
            return "running", f"a worker runs step {run.step_id}", None
        case State.WAITING:
            return _waiting(facts)
        case State.IN_DOUBT:
            return "in_doubt", "an effect may or may not have happened; a person settles it", None
        case State.IN_REVIEW:
            return "in_review", "today's code cannot safely read its checkpoint; a person decides", None
        case _:
            return _ended(run)


def _waiting(facts: Facts) -> tuple[str, str, datetime | None]:
    run = facts.run
    if not facts.waits:
        return "waiting.nothing", "it waits, and no open wait is on record: nothing wakes it", run.deadline_at
    wait = facts.waits[0]
    about = f" for {wait.correlation!r}" if wait.correlation else ""
    detail = f"it waits for {wait.kind} {wait.name!r}{about}; {_ANSWERS[wait.kind]} wakes it"
    clocks = [moment for moment in (wait.due_at, wait.expires_at, run.deadline_at) if moment is not None]
    return f"waiting.{wait.kind}", detail, min(clocks, default=None)


def _ended(run: Run) -> tuple[str, str, datetime | None]:
    detail = mask_text(run.error_message or run.error_class) or f"it has {run.state}"
    if run.state == State.CANCELLED:
        by = run.cancel_requested_by or "its wait"
        detail = f"cancelled by {by}: {mask_text(run.cancel_reason)}" if run.cancel_reason else f"cancelled by {by}"
    return f"ended.{run.state}", detail, None


def _gates(facts: Facts) -> list[Gate]:
    run = facts.run
    if run.is_terminal:
        return []
    since = {closed.gate: closed.since for closed in facts.before.closed}
    gates = [Gate(code="paused", detail=f"paused by {run.paused_by}")] if run.paused else []
    gates += [
        Gate(
            code=f"switch.{switch.scope}",
            detail=f"paused by {switch.actor}: {mask_text(switch.reason)}",
            since=switch.at,
        )
        for switch in facts.switches
    ]
    if run.state == State.QUEUED and not facts.workers:
        gates.append(Gate(code="workers.none", detail="no worker is alive", since=since.get("workers.none")))
    elif run.state == State.QUEUED and not any(_can_run(worker, run) for worker in facts.workers):
        gates.append(Gate(code="workers.version", detail=_no_version(run), since=since.get("workers.version")))
    cap = facts.before.cap
    if cap is not None and cap.running >= cap.most:
        detail = f"{cap.running} of at most {cap.most} runs of its tenant are running, and {cap.waiting} wait"
        gates.append(Gate(code="quota.tenant", detail=detail, since=since.get("quota.tenant", run.due_at)))
    for closed in facts.before.closed:
        if closed.gate == "quota.resource":
            detail = f"resource {closed.name!r} is at its cap, and {closed.held} runs of all tenants wait for it"
            gates.append(Gate(code=closed.gate, detail=detail, since=closed.since))
    return gates


def _no_version(run: Run) -> str:
    pinned = ", to which it is pinned" if run.pinned else ""
    return f"no living worker has {run.workflow} v{run.version} as it was recorded{pinned}"


def _can_run(worker: Worker, run: Run) -> bool:
    # A worker that does not say what it has may have it.
    return worker.plans is None or run.plan_id in worker.plans

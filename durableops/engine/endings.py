"""How a run leaves its worker's hand with its step unfinished: suspended, delayed, failed, stopped, handed back."""

from __future__ import annotations

import logging
from typing import Any

from durableops import failpoints
from durableops.checkpoints import codec
from durableops.checkpoints.failures import describe_error, describe_traceback
from durableops.clock import monotonic
from durableops.engine import bell, budgets, commit, inbound, probing, questions, queues, retries, step_timeouts
from durableops.engine.checks import DeadlinePassed, HandBack, WorkerStopping
from durableops.engine.database import ConnectionLost, Database
from durableops.engine.family import cancel_children, close_waits, create_children, nudge_parent
from durableops.engine.hand import Hand
from durableops.engine.questions import AskPerson
from durableops.engine.queues import leave_effects
from durableops.engine.spent import BudgetSpent
from durableops.engine.waits import Expired, Suspend
from durableops.engine.waking import db_now, wake
from durableops.errors import ControlSignal, EffectInDoubt, FenceLost, RunCancelled, RunPaused, StepTimeout
from durableops.limits.clocks import Clock, Firing, Phase
from runs.fenced import CheckpointRow, Written
from runs.states import TRANSITIONS
from runs.transitions import Cursor, TransitionRefused, fire, record_event

logger = logging.getLogger("durableops.endings")


def leave(database: Database, hand: Hand, signal: ControlSignal, *, checkpoint: CheckpointRow | None = None) -> bool:
    """Write what `signal` means; a hand-back may carry the checkpoint of the step before.

    Always False: the run is no longer in hand (a timeout may be retried, later).
    """
    match signal:
        case Suspend():
            _suspend(database, hand, signal)
        case Expired() if signal.policy == "fail":
            _end(database, hand, "time_out", str(signal), {})
        case RunCancelled():
            _end(database, hand, "stop", str(signal), {})
        case DeadlinePassed():
            _past_deadline(database, hand, signal)
        case AskPerson():
            _ask(database, hand, signal.firing)
        case BudgetSpent():
            _out_of_budget(database, hand, signal)
        case StepTimeout():
            return _time_out_step(database, hand, signal)
        case HandBack():
            _hand_back(database, hand, signal.cause, signal.detail, isolated=signal.isolated, resource=signal.resource,
                       checkpoint=checkpoint, delay=signal.delay, gate=signal.gate)  # fmt: skip
        case RunPaused():
            _hand_back(database, hand, "pause", str(signal))
        case WorkerStopping():
            _hand_back(database, hand, "worker_stopped", str(signal))
        case FenceLost():
            raise signal
        case _:
            raise AssertionError(f"no ending is written for {signal!r}")
    return False


def finished(database: Database, hand: Hand) -> None:
    """What follows a terminal state: a parent may be waiting for it."""
    if hand.claimed.has_parent:
        nudge_parent(database, hand.run_id)


def _end(
    database: Database, hand: Hand, event: str, reason: str, data: dict[str, Any],
    error: tuple[str, str, str] | None = None,
) -> None:  # fmt: skip
    """End the run, and everything below it."""
    hand.event(event, reason=reason, data=data, moves=True)

    def also(cursor: Cursor, written: Written) -> None:
        close_waits(cursor, [hand.run_id])
        cancel_children(cursor, hand.run_id, actor="engine", reason=f"its parent ended: {reason}")

    commit.execute(database, hand, hand.write(transition=event, error=error), also=also)
    finished(database, hand)


def _hand_back(
    database: Database, hand: Hand, cause: str, detail: str, *, isolated: bool | None = None,
    resource: str | None = None, checkpoint: CheckpointRow | None = None, delay: float = 0.0,
    gate: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    later = {"delay_seconds": round(delay, 3)} if delay else {}
    hand.event("hand_back", reason=detail, data={"cause": cause, **later, **(gate or {})}, moves=True)
    write = hand.write(transition="hand_back", wake=(cause, detail), isolated=isolated, resource=resource,
                       checkpoint=checkpoint, delay=delay)  # fmt: skip
    written = commit.execute(database, hand, write)
    if written.state == "cancelled":
        finished(database, hand)
    elif not delay:
        bell.ring()


def _suspend(database: Database, hand: Hand, signal: Suspend) -> None:
    """Open the wait and let go of the run, in one transaction with whatever makes the wait true already."""
    failpoints.reach(failpoints.Point.BEFORE_SUSPEND, hand.step.id)
    wait = signal.wait
    hand.event(
        "suspend",
        reason=str(signal),
        data={k: wait[k] for k in ("kind", "name", "author_key", "correlation", "on_timeout") if wait.get(k)},
        moves=True,
    )
    terms = [] if signal.again or "terms" not in wait else [wait["terms"]]
    write = hand.write(transition="suspend", waits=[] if signal.again else [wait], approvals=terms)
    woken = False

    def also(cursor: Cursor, written: Written) -> None:
        nonlocal woken
        if written.state == "waiting":
            woken = _after_suspend(cursor, hand, signal)

    if wait["kind"] == "event" and not signal.again:
        before = _lock_event(hand, wait)
        commit.execute(database, hand, write, before=before, also=also)
    else:
        commit.execute(database, hand, write, also=also)
    if hand.cancel_requested:
        finished(database, hand)
    elif woken or signal.children:
        bell.ring(max(1, len(signal.children or ())))


def _lock_event(hand: Hand, wait: dict[str, Any]) -> Any:
    def before(cursor: Cursor) -> None:
        inbound.lock(cursor, tenant_id=hand.claimed.tenant_id, name=wait["name"], correlation=wait["correlation"])

    return before


_WAIT = """
SELECT id, state, due_at <= now() FROM runs_wait
WHERE run_id = %s AND lineage = %s AND step_id = %s AND kind = %s AND name = %s AND author_key = %s"""


def _after_suspend(cursor: Cursor, hand: Hand, signal: Suspend) -> bool:
    """With the run's row locked: is what it waits for there already? Returns whether the run was woken again."""
    wait = signal.wait
    cursor.execute(
        _WAIT, [hand.run_id, hand.claimed.lineage, hand.step.id, wait["kind"], wait["name"], wait["author_key"]]
    )
    wait_id, state, due = cursor.fetchone()
    if state != "open" or (signal.again and due):
        return wake(
            cursor, hand.run_id, cause=wait["kind"], detail="it was answered while the run was on its way to wait"
        )
    if signal.children:
        create_children(cursor, signal.children, parent_id=hand.run_id, wait_id=wait_id,
                        tenant_id=hand.claimed.tenant_id, actor=f"run {hand.run_id}")  # fmt: skip
    if wait["kind"] == "event":
        return inbound.match_wait(cursor, run_id=hand.run_id, wait_id=wait_id)
    if wait["kind"] == "turn" and wait["correlation"]:
        return queues.look_once_more(cursor, hand.run_id, wait["correlation"])
    return wait["kind"] == "turn" and bool(queues.pass_on(cursor, [wait["name"]]))


def fail_attempt(database: Database, hand: Hand, error: BaseException) -> bool:
    """A step's code failed: enter it again later, or end the run. Outcomes of its calls are kept either way."""
    if isinstance(error, ConnectionLost):
        raise error
    if isinstance(error, EffectInDoubt):
        _end_in_doubt(database, hand, error)
        return False
    _retry_or_fail(database, hand, error, extra={"traceback": describe_traceback(error)})
    return False


def _retry_or_fail(
    database: Database, hand: Hand, error: BaseException, *, extra: dict[str, Any],
    verdict: retries.GiveUp | None = None,
) -> None:  # fmt: skip
    stored = describe_error(error)
    failed = hand.failed_attempts + 1
    decided = verdict or retries.decide(hand.step.retry, failed, error, hand.random)
    fingerprint = codec.hash_hex(f"{hand.step.id}\n{stored.type}")[:16]
    facts = {
        "error": stored.as_json(),
        "failed_attempts": failed,
        "elapsed_seconds": round(monotonic() - hand.entered_at, 3),
    }
    told = (stored.type[:200], stored.message, fingerprint)
    if isinstance(decided, retries.RetryAt):
        facts["delay_seconds"] = round(decided.delay, 3)
        hand.event("retry_later", reason=str(stored)[:500], data={**facts, **extra}, moves=True)
        write = hand.write(
            transition="retry_later", delay=decided.delay, failed_attempt=True, error=told,
            wake=("retry", f"attempt {failed} of step {hand.step.id!r} failed: {stored.type}"),
        )  # fmt: skip
    else:
        hand.event("fail", reason=f"{decided.why}: {stored}"[:500], data={**facts, **extra}, moves=True)
        write = hand.write(transition="fail", failed_attempt=True, error=told)
    written = commit.execute(database, hand, write)
    if written.state in ("failed", "cancelled"):
        finished(database, hand)
    elif isinstance(decided, retries.RetryAt) and decided.delay == 0:
        bell.ring()


def _time_out_step(database: Database, hand: Hand, signal: StepTimeout) -> bool:
    policy = hand.step.on_timeout
    again = isinstance(retries.decide(hand.step.retry, hand.failed_attempts + 1, signal, hand.random), retries.RetryAt)
    after = {"fail": "failed", "cancel": "cancelled", "ask": "waiting"}
    tell_step_timeout(hand, signal, next_state=after.get(policy, "queued" if again else "failed"))
    if policy == "cancel":
        _end(database, hand, "stop", str(signal), {})
    elif policy == "ask":
        _ask(database, hand, step_timeouts.firing(hand, limit=hand.step.longest, next_state="waiting"), told=True)
    else:
        verdict = retries.GiveUp(why="its policy is to fail") if policy == "fail" else None
        _retry_or_fail(database, hand, signal, verdict=verdict, extra={"clock": Clock.STEP_TIMEOUT})
    return False


def tell_step_timeout(hand: Hand, signal: StepTimeout, *, next_state: str) -> None:
    """Note that the step's clock fired, and that a result which came after it was refused."""
    firing = step_timeouts.firing(hand, limit=hand.step.longest, next_state=next_state)
    hand.event("step_timeout", reason=str(signal), data=firing.as_data())
    if signal.context.get("late"):
        hand.event(
            "late_result_rejected",
            reason=f"step {hand.step.id!r} returned after its timeout; its result was refused.",
            data={"elapsed_seconds": round(firing.elapsed_seconds, 3)},
        )


def _ask(database: Database, hand: Hand, firing: Firing, *, told: bool = False) -> None:
    """Let go of the run until a person has said how it goes on."""
    data = firing.as_data()
    hand.event("ask", reason=f"{firing.trigger}; a person is asked.", data={} if told else data, moves=True)

    def also(cursor: Cursor, written: Written) -> None:
        if written.state == "waiting":
            questions.put(cursor, hand.run_id, data, was="running")

    write = hand.write(transition="ask", failed_attempt=firing.clock is Clock.STEP_TIMEOUT)
    if commit.execute(database, hand, write, also=also).state == "cancelled":
        finished(database, hand)


BUDGET_MOVES = {"exhaust": "exhaust", "fail": "fail", "cancel": "stop", "ask": "ask", "extend": "hand_back"}
"""What becomes of a run in hand whose budget is spent, by the budget's policy."""


def _out_of_budget(database: Database, hand: Hand, signal: BudgetSpent) -> None:
    """Stop here: what is done is kept, and the run says what is missing."""
    event = BUDGET_MOVES[signal.row.policy]
    firing = budgets.firing(hand, signal, next_state=TRANSITIONS[event].target)
    if event == "ask":
        _ask(database, hand, firing)
    elif event == "hand_back":
        database.transacting(lambda cursor: budgets.extend(cursor, hand, signal.row))
        _hand_back(database, hand, "budget", "its budget was spent, and given as much again")
    else:
        said = budgets.summary(signal, firing.more)
        _end(database, hand, event, said, firing.as_data(), error=("BudgetSpent", said, "budget"))


def _end_in_doubt(database: Database, hand: Hand, error: EffectInDoubt) -> None:
    hand.event("doubt", reason=str(error), data=dict(error.context), moves=True)

    def also(cursor: Cursor, written: Written) -> None:
        probing.schedule(hand, cursor)

    if commit.execute(database, hand, hand.write(transition="doubt"), also=also).state == "cancelled":
        finished(database, hand)


def _past_deadline(database: Database, hand: Hand, signal: DeadlinePassed) -> None:
    event, firing = deadline(hand)
    if event == "hand_back":
        cause, whom = deadline_cause(firing)
        _hand_back(database, hand, cause, whom)
    else:
        _end(database, hand, event, str(signal), firing.as_data())


def deadline_cause(firing: Firing) -> tuple[str, str]:
    """What upkeep reads of a run that was handed back because its deadline came."""
    return f"{DEADLINE_CAME}{firing.phase}", firing.whom or "its deadline has come"


DEADLINE_CAME = "deadline_"
"""How the cause of such a hand-back begins; what the run was doing follows."""


def deadline(hand: Hand) -> tuple[str, Firing]:
    """The move with which a run in hand meets its deadline, and the record of the firing.

    What gives more time, or asks for it, is done by upkeep once nobody has the run in hand.
    """
    policy, limit = hand.definition.on_deadline, hand.definition.deadline
    event, state = {"fail": ("time_out", "timed_out"), "cancel": ("stop", "cancelled")}.get(
        policy, ("hand_back", "queued")
    )
    seconds = limit.total_seconds() if limit else None
    late = monotonic() - (hand.deadline if hand.deadline is not None else monotonic())
    tool = hand.tool_called_at(hand.deadline) if hand.deadline is not None else ""
    firing = Firing(
        clock=Clock.RUN_DEADLINE,
        limit_seconds=seconds,
        trigger=f"the run's deadline came while it was in step {hand.step.id!r}",
        elapsed_seconds=(seconds or 0.0) + late,
        phase=Phase.CALLING if tool else Phase.COMPUTING,
        next_state=state,
        whom=f"tool {tool}" if tool else "",
    )
    return event, firing


def reject_late_result(database: Database, hand: Hand, lost: FenceLost) -> None:
    """Somebody else holds the run: say so on its timeline and do nothing more for it. An ordinary answer."""
    logger.info("late result of run %s was refused: %s", hand.run_id, lost)
    try:
        with database.transaction() as cursor:
            if _give_back(cursor, hand, lost) or _is_gone(cursor, hand):
                return
            record_event(
                cursor,
                hand.run_id,
                "late_result_rejected",
                reason=str(lost),
                step_id=hand.step.id,
                attempt=hand.attempt,
                fence=hand.fence,
                worker_id=hand.worker_id,
                data={
                    "entered_seconds_ago": round(monotonic() - hand.entered_at, 3),
                    # They settle nothing any more, and may help whoever has to.
                    "outcomes": hand.answers_that_came_too_late(),
                },
            )
    except ConnectionLost as error:
        logger.warning("the refusal of a late result of run %s could not be recorded: %s", hand.run_id, error)


def _is_gone(cursor: Cursor, hand: Hand) -> bool:
    """Whether retention has removed the run: then there is no timeline left, and our log is where it is told."""
    cursor.execute("SELECT 1 FROM runs_run WHERE id = %s FOR KEY SHARE", [hand.run_id])
    return cursor.fetchone() is None


def _give_back(cursor: Cursor, hand: Hand, lost: FenceLost) -> bool:
    """Hand the run back if, against all expectation, it still stands under our fence: it would be in nobody's hand."""
    sets = {"wake_cause": "refused_write", "wake_detail": str(lost), "woken_at": db_now(cursor), "lost_at": None}
    try:
        fire("hand_back", hand.run_id, using=cursor, fence=hand.fence, reason=str(lost), sets=sets)
    except TransitionRefused:
        return False
    leave_effects(cursor, [hand.run_id], ended=False, cause="worker_lost", because="a write of its holder was refused.")
    logger.error("run %s was refused a write under its own fence and is handed back: %s", hand.run_id, lost)
    return True

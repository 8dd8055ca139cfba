"""Asking a person because a clock has come, and what their answer means. The question is an approval like any other."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any
from uuid import UUID

from durableops.checkpoints import codec
from durableops.engine import blocks
from durableops.engine.family import cancel_children, close_waits
from durableops.engine.waking import Closing, close_wait, wake
from durableops.errors import ControlSignal
from durableops.limits.clocks import Clock, Firing
from runs.models import Run
from runs.transitions import Cursor, fire

PREFIX = "clock:"
"""How the names of these approvals begin; an author's own may not."""
FALLBACK_SECONDS = 3 * 24 * 3600.0
"""How long an answer is waited for where the clock itself has no length."""

_OPEN = """
INSERT INTO runs_wait (run_id, tenant_id, lineage, step_id, kind, name, author_key, correlation, state, opened_at,
    since, expires_at, on_timeout, turns, question, facts, facts_hash, answered_by, clock)
SELECT r.id, r.tenant_id, r.lineage, r.step_id, 'approval', %(name)s, %(key)s, %(about)s, 'open', now(), now(),
    now() + %(seconds)s * interval '1 second', 'fail', 0, %(question)s, %(facts)s, %(hash)s, '', %(clock)s
FROM runs_run r WHERE r.id = %(run)s"""
_CLOSE = """
UPDATE runs_wait SET state = %s, answer = %s, answered_by = %s, answered_at = now()
WHERE id = %s AND state = 'open' RETURNING clock, correlation, facts"""
_SHOWN = (
    "clock", "limit_seconds", "elapsed_seconds", "cause", "whom", "unit", "limit", "spent", "wanted", "of_run",
    "period", "of_spending", "done", "missing",
)  # fmt: skip
_GIVE_BUDGET = "UPDATE runs_budget SET most = most + granted WHERE run_id = %s AND unit = %s"
_GIVE_TIME = {
    Clock.RUN_DEADLINE: "UPDATE runs_run SET deadline_at = now() + %s * interval '1 second', deadline_policy = 'ask'"
    " WHERE id = %s AND deadline_policy = 'asked'",
    Clock.WAIT_TIMEOUT: "UPDATE runs_wait SET expires_at = now() + %s * interval '1 second', on_timeout = 'ask'"
    " WHERE id = %s AND state = 'open' AND on_timeout = 'asked'",
}
_ASKS = {
    Clock.RUN_DEADLINE: "Its deadline has come. Give it once more as long?",
    Clock.QUEUE_WAIT: "It has stood in the queue for too long. Let it go on standing there?",
    Clock.STEP_TIMEOUT: "Its step took too long. Enter it again?",
    Clock.CALL_TIMEOUT: "A call got no answer in time. Try again?",
    Clock.WAIT_TIMEOUT: "Nothing came in time. Wait once more as long?",
    Clock.BUDGET: "Its budget is spent. Give it once more as much?",
}


class AskPerson(ControlSignal):
    """Leave the step and ask a person how the run goes on."""

    code = "signal.ask_person"

    def __init__(self, firing: Firing) -> None:
        super().__init__(f"{firing.trigger}; a person is asked.")
        self.firing = firing


def put(cursor: Cursor, run_id: UUID, firing: dict[str, Any], *, was: str, about: int | None = None) -> None:
    """Ask, with the run's row locked. `was` is the run's state before it was asked about.

    Not answered within the clock's own length is a no.
    """
    clock = Clock(firing["clock"])
    question = f"{firing['trigger']}. {_ASKS[clock]}"
    facts = codec.canonical(
        {k: firing[k] for k in _SHOWN if firing.get(k) is not None} | {"was": was},
        what="facts",
    )
    cursor.execute(
        _OPEN,
        {
            "run": run_id, "name": PREFIX + clock, "key": uuid.uuid4().hex, "clock": clock,
            "about": str(about or firing.get("of_spending") or ""),
            "seconds": firing["limit_seconds"] or FALLBACK_SECONDS, "question": question, "facts": facts,
            "hash": codec.hash_hex(f"{question}:{facts}"),
        },
    )  # fmt: skip


def answer(cursor: Cursor, run_id: UUID, wait_id: int, *, yes: bool, by: str, answer: str | None = None) -> bool:
    """Take the answer to a question of a clock, with the run's row locked. Returns whether the run ended with it.

    Yes gives the run, or the wait, as long again, and lets go on what had stopped; no lets the clock take its course.
    """
    state = "answered" if answer is not None else "expired"
    cursor.execute(_CLOSE, [state, answer, by, wait_id])
    row = cursor.fetchone()
    if row is None:
        return False
    clock, about, facts = Clock(row[0]), row[1], codec.loads(row[2])
    if clock is Clock.WAIT_TIMEOUT:
        _answer_about_wait(cursor, run_id, int(about), yes=yes, by=by, seconds=facts.get("limit_seconds"))
        return False
    cursor.execute("SELECT state FROM runs_run WHERE id = %s", [run_id])
    present = cursor.fetchone()[0]
    if not yes:
        return _end(cursor, run_id, clock, present, by=by)
    if clock is Clock.RUN_DEADLINE:
        cursor.execute(_GIVE_TIME[clock], [facts.get("limit_seconds") or FALLBACK_SECONDS, run_id])
    if clock is Clock.BUDGET and "of_spending" in facts:
        blocks.give(cursor, facts["of_spending"], asked_at=Decimal(facts["limit"]))
    elif clock is Clock.BUDGET:
        cursor.execute(_GIVE_BUDGET, [facts["of_run"], facts["unit"]])
    if present == "waiting" and facts["was"] in ("queued", "running"):
        wake(cursor, run_id, cause="clock", detail=f"{by} let it go on after its {clock.replace('_', ' ')}")
    return False


def policy_after(run: Run) -> str:
    """What a new deadline of a run meets: a question that was asked about the old one is asked of the new one too."""
    return "ask" if run.deadline_policy == "asked" else run.deadline_policy


_DROP = """
UPDATE runs_wait SET state = 'cancelled', answered_by = %s, answered_at = now()
WHERE run_id = %s AND state = 'open' AND clock = %s AND correlation = %s RETURNING facts"""


def drop(cursor: Cursor, run_id: UUID, clock: Clock, *, by: str, about: int | None = None) -> None:
    """Ask no more: somebody gave the time by another way. Lets go on what the question had stopped."""
    cursor.execute(_DROP, [by, run_id, clock, str(about or "")])
    dropped = cursor.fetchall()
    if any(codec.loads(facts)["was"] in ("queued", "running") for (facts,) in dropped):
        wake(cursor, run_id, cause="clock", detail=f"{by} gave it more time")


def _end(cursor: Cursor, run_id: UUID, clock: Clock, present: str, *, by: str) -> bool:
    if clock is Clock.RUN_DEADLINE:
        # Whatever it is doing by now, the deadline has passed; nothing else asks about it any more.
        cursor.execute("UPDATE runs_run SET deadline_policy = 'fail' WHERE id = %s", [run_id])
    elif present != "waiting":
        return False
    if present == "running":
        return False
    why = f"{by} let its {clock.replace('_', ' ')} take its course"
    event = "run_out" if clock is Clock.BUDGET else "time_out"
    errors = {"error_class": ERRORS.get(clock, "ClockFired"), "error_message": why, "error_fingerprint": str(clock)}
    fire(event, run_id, using=cursor, actor=by, reason=why, sets=errors)
    close_waits(cursor, [run_id])
    cancel_children(cursor, run_id, actor=by, reason=f"its parent ended: {why}")
    return True


ERRORS = {
    Clock.RUN_DEADLINE: "DeadlinePassed",
    Clock.QUEUE_WAIT: "QueueWaitPassed",
    Clock.STEP_TIMEOUT: "durableops.errors.StepTimeout",
    Clock.CALL_TIMEOUT: "durableops.errors.CallTimeout",
    Clock.BUDGET: "BudgetSpent",
}
"""What a run that ended by a clock is said to have failed of."""


def _answer_about_wait(cursor: Cursor, run_id: UUID, about: int, *, yes: bool, by: str, seconds: float | None) -> None:
    if yes:
        cursor.execute(_GIVE_TIME[Clock.WAIT_TIMEOUT], [seconds or FALLBACK_SECONDS, about])
        return
    cursor.execute("UPDATE runs_wait SET on_timeout = 'raise' WHERE id = %s AND on_timeout = 'asked'", [about])
    detail = f"{by} did not want to wait any longer"
    close_wait(cursor, run_id=run_id, wait_id=about, closing=Closing(state="expired", cause="wait_timeout",
                                                                       detail=detail))  # fmt: skip

"""Asking a tool's probe whether a call in doubt happened, as part of the step that needs to know, under its fence."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

from durableops.authoring.probing import DidNotHappen, Happened, ProbeAnswer, Unknown
from durableops.checkpoints.failures import safe_text
from durableops.clock import uptime
from durableops.effects.idempotency import Prepared
from durableops.engine import settlements
from durableops.engine.calling import LiveCall
from durableops.engine.checks import check_may_go_on, stop_reason
from durableops.engine.database import Database
from durableops.engine.hand import Hand
from durableops.engine.known import KnownEffect
from durableops.engine.ops import Ask, Attempt, Collect, Commit, Invoke, InvokeMany, Logic
from durableops.engine.records import load_slots
from durableops.engine.settlements import OpenDoubt, Settlement
from durableops.errors import ControlSignal, InputRefused
from durableops.masking import mask_text
from runs.fenced import Written
from runs.transitions import Cursor, record_event

DELAYS_SECONDS = (5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Pauses between two questions about one doubt; the last one is kept."""
LONGEST_ANSWER = 500
CONCURRENCY = 4

_LOOK = """
SELECT d.id, coalesce(d.probe_at <= now(), true), d.probe_attempts, coalesce(e.quiet_after <= now(), false),
    CASE WHEN e.holds_system THEN e.system ELSE '' END
FROM runs_doubt d JOIN runs_effect e ON e.id = d.effect_id
WHERE d.effect_id = %s AND d.settled_at IS NULL AND e.state = 'in_doubt'"""
_NOTE = """
UPDATE runs_doubt SET probe_attempts = probe_attempts + 1, probe_said = %s, probe_at = now() + %s * interval '1 second'
WHERE id = %s AND settled_at IS NULL"""
_SCHEDULE = """
UPDATE runs_doubt SET probe_at = now() + %s * interval '1 second'
WHERE effect_id = ANY(%s) AND settled_at IS NULL AND probe_at IS NULL"""

type Doubted = dict[int, tuple[Prepared, KnownEffect]]


@dataclass
class _Question:
    """One doubt that its probe is asked about."""

    hand: Hand
    prepared: Prepared
    effect_id: int
    doubt_id: int
    attempts: int
    quiet: bool
    """Whether nobody can be sending it any more: only then it is believed not to have happened."""
    holds: str
    settlement: Settlement | None = None
    said: str = ""

    def hear(self, attempt: Attempt) -> None:
        """Take the answer, whatever it is."""
        answer: Any = attempt.value
        if isinstance(attempt.error, ControlSignal):
            raise attempt.error
        if attempt.error is not None:
            answer = Unknown(f"{type(attempt.error).__name__}: {attempt.error}")
        elif not isinstance(answer, Happened | DidNotHappen | Unknown):
            answer = Unknown(f"its probe returned {type(answer).__name__}; it wants Happened, DidNotHappen or Unknown")
        self.settlement, self.said = self._meaning(answer)

    def _meaning(self, answer: ProbeAnswer) -> tuple[Settlement | None, str]:
        match answer:
            case Happened():
                field, value = self.prepared.tool.resource_id, answer.result
                found = value.get(field) if field and isinstance(value, dict) else None
                downstream = answer.downstream_id or ("" if found is None else str(found)[: settlements.LONGEST_ID])
                given = Settlement(how="happened", downstream_id=downstream, result=value, has_result=value is not None)
            case DidNotHappen() if self.quiet:
                given = Settlement(how="did_not", evidence=answer.evidence[: settlements.MAX_EVIDENCE_CHARACTERS])
            case DidNotHappen():
                return None, "it has not happened so far, and may still be on its way"
            case Unknown():
                return None, answer.why or "it does not know"
        try:
            settlements.check(given)
        except InputRefused as refused:
            return None, f"what its probe returned cannot be recorded: {refused.detail}"
        return given, ""

    def write(self, cursor: Cursor, written: Written) -> None:
        """Record the answer with a commit of the run's holder. A person may have been quicker: theirs stands."""
        cursor.execute(_LOOK + " FOR NO KEY UPDATE OF d, e", [self.effect_id])
        row = cursor.fetchone()
        if row is None or row[0] != self.doubt_id:
            return
        tool = self.prepared.tool
        if self.settlement is None:
            delay = DELAYS_SECONDS[min(self.attempts, len(DELAYS_SECONDS) - 1)]
            cursor.execute(_NOTE, [safe_text(mask_text(self.said), limit=LONGEST_ANSWER), delay, self.doubt_id])
            return
        doubt = OpenDoubt(
            doubt_id=self.doubt_id, effect_id=self.effect_id, run_id=self.hand.run_id, tool=tool.name,
            resource=self.prepared.resource, holds=self.holds,
        )  # fmt: skip
        settlements.apply(cursor, doubt, self.settlement, by="probe", reason="")
        record_event(
            cursor, self.hand.run_id, "settle", actor="probe", step_id=self.hand.step.id, fence=self.hand.fence,
            worker_id=self.hand.worker_id, reason=f"the probe of {tool.name} was asked",
            data={
                "effect": self.effect_id, "doubt": self.doubt_id, "tool": tool.name, "resource": self.prepared.resource,
                **settlements.as_facts(self.settlement),
            },
        )  # fmt: skip


def ask(hand: Hand, doubted: Doubted) -> Logic[dict[int, KnownEffect]]:
    """Ask about each doubt whose tool has a probe and whose time has come. Answers with those that are settled now."""
    questions: dict[int, _Question] = {}
    for n, (prepared, known) in doubted.items():
        if prepared.tool.probe is not None:
            hand.probeable.add(known.id)
            found = yield from _question(hand, prepared, known)
            if found is not None:
                questions[n] = found
    if not questions:
        return {}
    check_may_go_on(hand)
    asked = list(questions.values())
    batch = yield InvokeMany([_invoke(hand, one.prepared) for one in asked], CONCURRENCY)
    try:
        while not batch.is_done:
            for n, attempt in (yield Collect(batch, 3600.0)):
                asked[n].hear(attempt)
    finally:
        batch.stop()
    for one in asked:
        yield Commit(hand.write(), also=one.write)
    now = yield from load_slots(hand, [one.prepared.slot for one in asked])
    return {n: now[one.prepared.slot] for n, one in questions.items() if now[one.prepared.slot].state != "in_doubt"}


def schedule(hand: Hand, cursor: Cursor) -> None:
    """Have doubts of this entry whose tool has a probe asked about for the first time."""
    if hand.probeable:
        cursor.execute(_SCHEDULE, [DELAYS_SECONDS[0], list(hand.probeable)])


def _question(hand: Hand, prepared: Prepared, known: KnownEffect) -> Logic[_Question | None]:
    def look(database: Database) -> Any:
        return database.read(_LOOK, [known.id])

    rows = yield Ask(look)
    if not rows or not rows[0][1]:
        return None
    doubt_id, _, attempts, quiet, holds = rows[0]
    return _Question(hand, prepared, known.id, doubt_id, attempts, quiet, holds)


def _invoke(hand: Hand, prepared: Prepared) -> Invoke:
    probe = prepared.tool.probe
    assert probe is not None
    # For the driver it is a tool like any other: on its thread or on the loop, and cut off at the same timeout.
    tool = replace(prepared.tool, function=probe, is_async=inspect.iscoroutinefunction(probe), safety="read", system="")
    live = LiveCall(
        replace(prepared, tool=tool), run_id=str(hand.run_id), tenant=hand.claimed.tenant, attempt=1,
        send_before=uptime() + tool.timeout, gone=lambda: stop_reason(hand) is not None,
    )  # fmt: skip
    return Invoke(tool, live, prepared.request)

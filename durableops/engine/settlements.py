"""What may be said of an effect in doubt, and writing it: for people who settle, and for probes that are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durableops.authoring import registry
from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.engine import queues, results
from durableops.engine.acting import kept_reason
from durableops.engine.waking import db_now
from durableops.errors import InputRefused, PayloadRefused
from runs.doubting import BLOCKED
from runs.transitions import Cursor, TransitionRefused, fire

HOW = ("happened", "did_not", "compensate", "give_up")
MAX_EVIDENCE_CHARACTERS = 2_000
LONGEST_ID = 255

_SETTLE = """
UPDATE runs_doubt SET settled_at = now(), settled_as = %s, settled_by = %s, downstream_id = %s, evidence = %s,
    probe_at = NULL
WHERE id = %s AND settled_at IS NULL"""
_OUTCOME = """
UPDATE runs_effect SET state = %(state)s, completed_at = now(), result = %(result)s, downstream_id = %(downstream)s,
    error_class = %(class)s, error_message = %(message)s, holds_system = false
WHERE id = %(effect)s AND state = 'in_doubt'"""
_MAY_WAKE = f"SELECT r.state = 'in_doubt' AND NOT {BLOCKED.format(run='r')} FROM runs_run r WHERE r.id = %s"


WORDS = {
    "happened": "it happened",
    "did_not": "it did not happen",
    "compensate": "it is to be undone",
    "give_up": "given up",
}


DID_NOT = "DidNotHappen"
"""Stands on an effect that was found not to have happened: sent again, it is a second sending (see runs.parts)."""
_STATES = {"happened": "succeeded", "did_not": "withdrawn", "compensate": "given_up", "give_up": "given_up"}


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """What somebody says became of an effect."""

    how: str
    """One of HOW."""
    downstream_id: str = ""
    """The other side's id of what was made."""
    result: Any = None
    """What the step gets from its call, if it happened; JSON."""
    has_result: bool = False
    """Whether a result was given. Without one, a tool that names its id field gets an object of just that."""
    evidence: str = ""
    """How it is known."""


@dataclass(frozen=True, kw_only=True)
class OpenDoubt:
    """What is settled: an open doubt and its effect, as they are under the lock of the effect's run."""

    doubt_id: int
    effect_id: int
    run_id: UUID
    tool: str
    resource: str
    holds: str
    """The system whose queue it holds, if it does."""


def apply(cursor: Cursor, doubt: OpenDoubt, settlement: Settlement, *, by: str, reason: str) -> bool:
    """Write what was said, with the run's row locked. Returns whether the run was woken by it.

    Shared with probes, whose run is in a worker's hand.
    """
    tool, evidence = registry.tool(doubt.tool), kept_reason(settlement.evidence)
    downstream, happened = settlement.downstream_id.strip(), settlement.how == "happened"
    cursor.execute(_SETTLE, [settlement.how, by, downstream, evidence, doubt.doubt_id])
    cursor.execute(_OUTCOME, {
        "effect": doubt.effect_id, "state": _STATES[settlement.how], "downstream": downstream,
        "result": _result_text(tool, settlement) if happened else None,
        "class": {"did_not": DID_NOT, "happened": ""}.get(settlement.how, "EffectGivenUp"),
        "message": "" if happened else f"{by}: {reason or evidence or WORDS[settlement.how]}",
    })  # fmt: skip
    if doubt.holds:
        queues.pass_on(cursor, [doubt.holds])
    queues.wake_askers(cursor, doubt.effect_id)
    return _wake(cursor, doubt.run_id, detail=f"{by}: {WORDS[settlement.how]} ({doubt.tool} for {doubt.resource!r})")


def _wake(cursor: Cursor, run_id: UUID, *, detail: str) -> bool:
    cursor.execute(_MAY_WAKE, [run_id])
    if not cursor.fetchone()[0]:
        return False
    sets = {"wake_cause": "settled", "wake_detail": detail, "woken_at": db_now(cursor), "lost_at": None}
    try:
        fire("settle", run_id, using=cursor, reason=detail, data={"cause": "settled"}, sets=sets)
    except TransitionRefused:
        return False
    return True


def check(settlement: Settlement) -> None:
    """Raise InputRefused for what cannot be recorded."""
    if settlement.how not in HOW:
        raise InputRefused(f"{settlement.how!r} settles nothing; say one of {', '.join(HOW)}.", path="/how")
    if len(settlement.downstream_id) > LONGEST_ID or not settlement.downstream_id.isprintable():
        raise InputRefused(f"give an id of one line and at most {LONGEST_ID} characters.", path="/downstream_id")
    if len(settlement.evidence) > MAX_EVIDENCE_CHARACTERS:
        raise InputRefused(f"the evidence is longer than {MAX_EVIDENCE_CHARACTERS} characters.", path="/evidence")
    if settlement.has_result and settlement.how != "happened":
        raise InputRefused("only what happened has a result; leave it out.", path="/result")
    try:
        codec.dumps(settlement.result, what="result", max_bytes=get_conf().payload_max_bytes)
    except PayloadRefused as error:
        raise InputRefused(error.detail, path=f"/result{error.path}") from None


def _result_text(tool: Any, settlement: Settlement) -> str:
    value = settlement.result
    if not settlement.has_result and tool is not None and tool.resource_id and settlement.downstream_id.strip():
        value = {tool.resource_id: settlement.downstream_id.strip()}
    text = codec.dumps(value, what="result", max_bytes=get_conf().payload_max_bytes)
    return text if tool is None else results.stored(tool, text)


def as_facts(settlement: Settlement) -> dict[str, Any]:
    """What the timeline and the audit keep: references, never the result."""
    return {
        "as": settlement.how,
        "downstream_id": settlement.downstream_id.strip(),
        "evidence": kept_reason(settlement.evidence),
    }

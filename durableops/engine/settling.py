"""Settling a doubt: a person (or a probe) says what became of an effect, once, and the run goes on with that.

It happened · it did not, send it again · undo it, whatever it was · give up finding out. Of two people who settle at
once one wins, and the other is told what happened. What a cancelled or finished run left open is settled alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.authoring import registry
from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.engine import bell, queues, results
from durableops.engine.acting import Done, audited_refusals, kept_reason
from durableops.engine.compensation import owing
from durableops.engine.doubts import locked, refused, write
from durableops.engine.sender import whether_quiet
from durableops.engine.waking import db_now
from durableops.errors import InputRefused, PayloadRefused
from runs.doubting import BLOCKED
from runs.models import Doubt, IdempotencyRecord, Tenant
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


@audited_refusals
def settle(doubt_id: int, *, tenant: Tenant, actor: str, reason: str, settlement: Settlement) -> Done:
    """Settle a doubt for good, and wake its run if it was the last one it is held by.

    Raises TransitionRefused when somebody was quicker or when it may still be sent, InputRefused for what cannot be
    recorded, DoubtNotFound.
    """
    _check(settlement)
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        if doubt.settled_at is not None:
            raise refused(doubt, run, "settle", "an open one")
        effect = doubt.effect
        if settlement.how == "did_not" and (why := whether_quiet(cursor, effect)):
            raise refused(doubt, run, "settle", f"that nobody can be sending it any more: {why}")
        if settlement.how == "compensate":
            owing.owe(cursor, effect.pk, actor=actor, because=kept_reason(reason))
        woken = apply(cursor, _as_open(doubt), settlement, by=actor, reason=kept_reason(reason))
        before, after = {"state": "in_doubt", "cause": doubt.cause}, _as_facts(settlement)
        write(cursor, doubt, run, "settle", actor=actor, reason=kept_reason(reason), before=before, after=after)
        transaction.on_commit(bell.ring)
    message = f"settled: {_WORDS[settlement.how]}{'; its run goes on' if woken else ''}."
    return Done(run_id=run.pk, state="queued" if woken else run.state, settled=True, message=message)


_WORDS = {
    "happened": "it happened",
    "did_not": "it did not happen",
    "compensate": "it is to be undone",
    "give_up": "given up",
}


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


def _as_open(doubt: Doubt) -> OpenDoubt:
    effect = doubt.effect
    return OpenDoubt(
        doubt_id=doubt.pk, effect_id=effect.pk, run_id=doubt.run_id, tool=effect.tool, resource=effect.resource,
        holds=effect.system if effect.holds_system else "",
    )  # fmt: skip


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
        "message": "" if happened else f"{by}: {reason or evidence or _WORDS[settlement.how]}",
    })  # fmt: skip
    if happened:
        owing.owe_if_ordered(cursor, doubt.effect_id)
    if doubt.holds:
        queues.pass_on(cursor, [doubt.holds])
    queues.wake_askers(cursor, doubt.effect_id)
    return _wake(cursor, doubt.run_id, detail=f"{by}: {_WORDS[settlement.how]} ({doubt.tool} for {doubt.resource!r})")


DID_NOT = "DidNotHappen"
"""Stands on an effect that was found not to have happened: sent again, it is a second sending (see runs.parts)."""
_STATES = {"happened": "succeeded", "did_not": "withdrawn", "compensate": "given_up", "give_up": "given_up"}


@audited_refusals
def release(doubt_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let a legacy system's queue go on although this call may still be happening there. The doubt stays open."""
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        effect = doubt.effect
        if doubt.settled_at is not None or not effect.holds_system:
            raise refused(doubt, run, "release_system", "an open one that holds the queue of its system")
        IdempotencyRecord.objects.filter(pk=effect.pk).update(holds_system=False)
        Doubt.objects.filter(pk=doubt.pk).update(released_by=actor)
        before, after = {"holds": effect.system}, {"holds": "", "system": effect.system}
        write(cursor, doubt, run, "release_system", actor=actor, reason=kept_reason(reason), before=before, after=after)
        queues.pass_on(cursor, [effect.system])
        transaction.on_commit(bell.ring)
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"the queue of {effect.system} goes on.")


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


def _check(settlement: Settlement) -> None:
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


def _as_facts(settlement: Settlement) -> dict[str, Any]:
    """What the timeline and the audit keep: references, never the result."""
    return {
        "as": settlement.how,
        "downstream_id": settlement.downstream_id.strip(),
        "evidence": kept_reason(settlement.evidence),
    }

"""Settling a doubt: a person says what became of an effect, once, and the run goes on with that.

It happened · it did not, send it again · undo it, whatever it was · give up finding out. Of two people who settle at
once one wins, and the other is told what happened. What a cancelled or finished run left open is settled alike.
"""

from __future__ import annotations

from django.db import connection, transaction

from durableops.engine import bell, choices, queues
from durableops.engine.acting import Done, audited_refusals, kept_reason
from durableops.engine.compensation import owing
from durableops.engine.doubts import locked, refused, write
from durableops.engine.sender import whether_quiet, whether_unsendable
from durableops.engine.settlements import WORDS, OpenDoubt, Settlement, apply, as_facts, check
from runs.models import Doubt, IdempotencyRecord, Tenant


@audited_refusals
def settle(
    doubt_id: int, *, tenant: Tenant, actor: str, reason: str, settlement: Settlement, plan_hash: str | None = None
) -> Done:
    """Settle a doubt for good, and wake its run if it was the last one it is held by.

    With `plan_hash`, only if the facts are those that were shown (`choices`). Raises TransitionRefused when somebody
    was quicker or when it may still be sent, PlanChanged, InputRefused for what cannot be recorded, DoubtNotFound.
    """
    check(settlement)
    with transaction.atomic(), connection.cursor() as cursor:
        doubt, run = locked(doubt_id, tenant)
        if doubt.settled_at is not None:
            raise refused(doubt, run, "settle", "an open one")
        choices.check(doubt, run, settlement.how, plan_hash)
        effect = doubt.effect
        if settlement.how == "did_not" and (why := whether_quiet(cursor, effect)):
            raise refused(doubt, run, "settle", f"that nobody can be sending it any more: {why}")
        if why := whether_unsendable(cursor, doubt):
            raise refused(doubt, run, "settle", f"that nobody can send it any more: {why}")
        if settlement.how == "compensate":
            owing.owe(cursor, effect.pk, actor=actor, because=kept_reason(reason))
        if settlement.how == "happened":
            owing.owe_if_ordered(cursor, effect.pk)
        woken = apply(cursor, _as_open(doubt), settlement, by=actor, reason=kept_reason(reason))
        before, after = {"state": "in_doubt", "cause": doubt.cause}, as_facts(settlement)
        write(cursor, doubt, run, "settle", actor=actor, reason=kept_reason(reason), before=before, after=after)
        transaction.on_commit(bell.ring)
    message = f"settled: {WORDS[settlement.how]}{'; its run goes on' if woken else ''}."
    return Done(run_id=run.pk, state="queued" if woken else run.state, settled=True, message=message)


def _as_open(doubt: Doubt) -> OpenDoubt:
    effect = doubt.effect
    return OpenDoubt(
        doubt_id=doubt.pk, effect_id=effect.pk, run_id=doubt.run_id, tool=effect.tool, resource=effect.resource,
        holds=effect.system if effect.holds_system else "",
    )  # fmt: skip


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

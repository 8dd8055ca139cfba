"""What people do about compensation: begin it, agree, do a task and prove it, try again, waive. Each is audited.

Of two who decide at once the second is told what the first did. The linked run, if one works on it, is woken by an
event, which is sent in the same transaction; so nobody waits for a decision that was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from durableops.checkpoints.failures import safe_text
from durableops.engine import bell, guard, inbound
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused
from durableops.engine.compensation import owing
from durableops.engine.compensation.undoing import EVENT
from durableops.engine.waking import db_now
from durableops.errors import CompensationNotFound, InputRefused, TransitionRefused
from durableops.masking import mask_text
from runs.models import AuditEntry, Compensation, Run, Tenant
from runs.models.compensation import COMPENSATION_FINAL
from runs.transitions import Cursor, record_event

MAX_EVIDENCE_CHARACTERS = 4000
MAX_DOWNSTREAM_CHARACTERS = 255
BY_HAND = frozenset({"owed", "approved", "running", "failed"})
"""States in which a person may say that they have undone it."""


@audited_refusals
def compensate(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, plan_hash: str | None = None) -> Done:
    """Undo what a finished run, and all below it, had done: newest first, by a linked run."""
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if not run.is_terminal:
            raise refused(run, "compensate", "a finished run; cancel it with what it did to be undone")
        guard.check(cursor, "compensate", run.pk, plan_hash)
        order = owing.order(cursor, run.pk, choice="compensate", actor=actor, reason=reason)
        begun = owing.apply_order(cursor, order, run.pk)
        if begun is None:
            raise refused(run, "compensate", "one below which nothing is open any more")
        if begun.linked_run is None:
            raise refused(run, "compensate", "something it did that is owed; nothing is, or all of it is being undone")
        _audit(
            run, "compensate", actor=actor, reason=reason,
            after={"owed": begun.owed, "linked_run": str(begun.linked_run)},
        )  # fmt: skip
        transaction.on_commit(bell.ring)
    message = f"{begun.owed} of its effects are being undone by run {begun.linked_run}."
    return Done(run_id=run.pk, state=run.state, settled=True, message=message)


@audited_refusals
def claim(compensation_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that this person is on it. It keeps nobody from deciding; it tells them that somebody is at it."""

    def take(one: Compensation, now: Any) -> str:
        if one.is_final or one.claimed_by:
            raise _refused(one, "claim_compensation", "one that nobody is on")
        one.claimed_by, one.claimed_at = actor, now
        return "it is yours."

    return _change(compensation_id, "claim_compensation", take, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def unclaim(compensation_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that nobody is on it any more; also for somebody else who is away."""

    def let_go(one: Compensation, now: Any) -> str:
        if one.is_final or not one.claimed_by:
            raise _refused(one, "unclaim_compensation", "one that somebody is on")
        one.claimed_by, one.claimed_at = "", None
        return "it is free again."

    return _change(compensation_id, "unclaim_compensation", let_go, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def approve(compensation_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Agree with what another person proposed: that a tool undoes it, or that it was done by hand as they say."""

    def agree(one: Compensation, now: Any) -> str:
        if one.state != "proposed":
            raise _refused(one, "approve_compensation", "one that was proposed")
        if one.proposed_by == actor:
            raise _refused(one, "approve_compensation", f"another person than {actor}, who proposed it")
        one.approved_by = actor
        if one.evidence:
            _settle(one, "done", by=one.proposed_by, now=now)
            return "counted as undone, by two people."
        _move(one, "approved", now)
        return "approved; it is undone when its turn comes."

    return _change(compensation_id, "approve_compensation", agree, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def send_back(compensation_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Do not take what another person says as proof: it is to be done again, or proved otherwise."""
    _wants_reason(reason)

    def turn_down(one: Compensation, now: Any) -> str:
        if one.state != "proposed" or not one.evidence:
            raise _refused(one, "send_back_compensation", "one that somebody says they have done")
        one.evidence, one.downstream_id, one.proposed_by, one.reason = "", "", "", ""
        _move(one, "running" if one.linked_run_id else "owed", now)
        return "sent back."

    return _change(compensation_id, "send_back_compensation", turn_down, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def report_done(
    compensation_id: int, *, tenant: Tenant, actor: str, evidence: str, reason: str = "", downstream_id: str = ""
) -> Done:
    """Say that one has undone it by hand, and what proves it. With four eyes a second person has to agree."""
    proof = safe_text(mask_text(evidence.strip()), limit=MAX_EVIDENCE_CHARACTERS)
    if not proof:
        raise InputRefused("say what proves it: a receipt's number, a link.", path="/evidence")

    def note(one: Compensation, now: Any) -> str:
        if one.state not in BY_HAND or (one.how == "tool" and one.state == "running"):
            wanted = "one that no call is undoing just now" if one.state == "running" else "one that is not settled"
            raise _refused(one, "compensation_done_by_hand", wanted)
        one.evidence = proof
        one.downstream_id = safe_text(downstream_id.strip(), limit=MAX_DOWNSTREAM_CHARACTERS)
        one.reason = kept_reason(reason)
        if one.four_eyes:
            one.proposed_by, one.approved_by = actor, ""
            _move(one, "proposed", now)
            return "noted; a second person has to agree."
        _settle(one, "done", by=actor, now=now)
        return "undone."

    return _change(compensation_id, "compensation_done_by_hand", note, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def try_again(compensation_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Let a tool that could not undo it try once more."""
    _wants_reason(reason)

    def again(one: Compensation, now: Any) -> str:
        if one.state != "failed":
            raise _refused(one, "retry_compensation", "one that failed")
        _move(one, "approved", now)
        return "it is tried once more."

    return _change(compensation_id, "retry_compensation", again, tenant=tenant, actor=actor, reason=reason)


@audited_refusals
def waive(compensation_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Decide that it stays as it is. The reason stands for ever."""
    _wants_reason(reason)

    def drop(one: Compensation, now: Any) -> str:
        if one.is_final or (one.how == "tool" and one.state == "running"):
            wanted = "one that is not settled" if one.is_final else "one that no call is undoing just now"
            raise _refused(one, "waive_compensation", wanted)
        one.reason = kept_reason(reason)
        _settle(one, "waived", by=actor, now=now)
        return "waived."

    return _change(compensation_id, "waive_compensation", drop, tenant=tenant, actor=actor, reason=reason)


@dataclass(frozen=True, kw_only=True)
class _Where:
    """What has to be locked before a compensation, read without a lock."""

    run_id: UUID
    linked_run_id: UUID | None


def _change(
    compensation_id: int, verb: str, work: Callable[[Compensation, Any], str], *, tenant: Tenant, actor: str,
    reason: str,
) -> Done:  # fmt: skip
    """Lock, let `work` decide and change, keep it, tell it on the run that did the effect, wake whoever waits."""
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            one = _locked(cursor, compensation_id, tenant)
            if one is None:
                continue
            before = {"compensation": one.pk, "effect": one.effect_id, "state": one.state}
            message = work(one, db_now(cursor))
            one.save()
            after = {"state": one.state, "tool": one.effect.tool, "resource": one.effect.resource}
            told = {key: value for key in ("evidence", "downstream_id") if (value := getattr(one, key))}
            record_event(
                cursor, one.run_id, verb, actor=actor, reason=kept_reason(reason), step_id=one.effect.step_id,
                data={"compensation": one.pk, "effect": one.effect_id, **after},
            )  # fmt: skip
            _audit(one.run, verb, actor=actor, reason=reason, before=before, after={**after, **told})
            if one.linked_run_id is not None and before["state"] != one.state:
                inbound.send_event(EVENT, tenant=tenant, actor=actor, correlation=str(one.pk))
        return Done(run_id=one.run_id, state=one.state, settled=True, message=message)


def _locked(cursor: Cursor, compensation_id: int, tenant: Tenant) -> Compensation | None:
    """The compensation with everything locked in the order that all keep. None when it has moved: ask again."""
    known = Compensation.objects.filter(pk=compensation_id, tenant=tenant)
    row = known.values_list("run_id", "linked_run_id").first()
    if row is None:
        raise CompensationNotFound(f"there is no compensation {compensation_id} here.")
    where = _Where(run_id=row[0], linked_run_id=row[1])
    inbound.lock(cursor, tenant_id=tenant.pk, name=EVENT, correlation=str(compensation_id))
    runs = [run_id for run_id in (where.run_id, where.linked_run_id) if run_id is not None]
    list(Run.objects.select_for_update(no_key=True).filter(pk__in=runs).order_by("pk").values_list("pk"))
    one = known.select_for_update(no_key=True, of=("self",)).select_related("effect", "run").get()
    return one if one.linked_run_id == where.linked_run_id else None


def _move(one: Compensation, state: str, now: Any) -> None:
    one.state, one.state_since, one.error = state, now, ""


def _settle(one: Compensation, state: str, *, by: str, now: Any) -> None:
    assert state in COMPENSATION_FINAL
    _move(one, state, now)
    one.settled_by, one.settled_at = by, now


def _wants_reason(reason: str) -> None:
    if not reason.strip():
        raise InputRefused("say why; it stands in the audit.", path="/reason")


def _refused(one: Compensation, verb: str, wanted: str) -> TransitionRefused:
    who = one.settled_by or (one.approved_by if one.state == "approved" else one.proposed_by) or one.claimed_by
    by = f" ({who}, {one.state_since:%H:%M:%S})" if who else ""
    return TransitionRefused(
        f"undoing {one.effect.tool} for {one.effect.resource!r} is {one.state}{by}; this needs {wanted}. "
        "Nothing was changed.",
        run=one.run_id, state=one.state, event=verb, wanted=wanted,
    )  # fmt: skip


def _audit(
    run: Run, verb: str, *, actor: str, reason: str, after: dict[str, Any], before: dict[str, Any] | None = None
) -> None:  # fmt: skip
    AuditEntry.objects.create(
        tenant_id=run.tenant_id, actor=actor, verb=verb, target_kind="run", target_id=str(run.pk),
        reason=kept_reason(reason), before=before or {}, after=after,
    )  # fmt: skip

"""What people do about an approval: decide it, once; take it on, hand it to somebody, pass it upwards, note something.

Whether somebody may use a verb at all was asked before. Who may decide this very question stands in its record and is
asked here: the caller says as which roles the person counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from durableops.authoring import forms
from durableops.authoring.asking import DECIDERS, YES_AND_NO
from durableops.checkpoints import codec
from durableops.conf import get_conf
from durableops.engine import bell, questions
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused, write
from durableops.engine.waking import Closing, close_wait, db_now
from durableops.errors import InputRefused, NotPermitted, PayloadRefused, PlanChanged, RunNotFound, TransitionRefused
from runs.models import Approval, Membership, Run, Tenant, Wait

EVERYBODY = frozenset(DECIDERS)
ROLES: dict[str, frozenset[str]] = {
    "viewer": frozenset(),
    "operator": frozenset({"operator"}),
    "reviewer": frozenset({"reviewer"}),
    "admin": EVERYBODY,
}
"""As which of the roles that may decide a member of the tenant counts."""
_PLAIN = [{"name": one.name, "label": one.label, "approves": one.approves} for one in YES_AND_NO]
_STARTED_BY = """
WITH RECURSIVE up AS (
    SELECT id, parent_id, created_by FROM runs_run WHERE id = %s
    UNION ALL SELECT r.id, r.parent_id, r.created_by FROM runs_run r JOIN up ON r.id = up.parent_id
) SELECT created_by FROM up WHERE parent_id IS NULL"""


def terms_of(wait: Wait) -> Approval:
    """The record of a question. One that was asked before there were records is a plain yes or no for reviewers."""
    found: Approval | None = getattr(wait, "approval", None)
    return found or Approval(wait=wait, run_id=wait.run_id, tenant_id=wait.tenant_id, roles=["reviewer"])


def choices_of(approval: Approval) -> list[dict[str, Any]]:
    """What may be said."""
    return list(approval.choices) or [dict(one) for one in _PLAIN]


def is_plain(approval: Approval) -> bool:
    """Whether only a yes or a no is offered."""
    return choices_of(approval) == _PLAIN


def started_by(run: Run) -> str:
    """Who asked for the run: of a child, whoever started the first one above it."""
    with connection.cursor() as cursor:
        cursor.execute(_STARTED_BY, [run.pk])
        return str(cursor.fetchone()[0])


def deciders_of(approval: Approval) -> frozenset[str]:
    """The roles that may decide just now."""
    return frozenset(approval.roles) | ({approval.escalate_to} if approval.escalated_at else frozenset())


def why_not(approval: Approval, run: Run, *, actor: str, roles: Collection[str]) -> str:
    """Why this person may not decide, in words; empty when they may."""
    if approval.four_eyes and actor == started_by(run):
        return "somebody else than whoever started the run"
    if approval.delegated_to and actor != approval.delegated_to and "admin" not in roles:
        return f"{approval.delegated_to}, whom {approval.delegated_by} asked, or an admin"
    if not deciders_of(approval) & set(roles):
        return f"{who(approval)} of {run.tenant.slug}"
    return ""


def who(approval: Approval) -> str:
    """Who is to decide, in words."""
    if approval.delegated_to:
        return str(approval.delegated_to)
    return " or ".join(_with_article(role) for role in sorted(deciders_of(approval)))


def approve(wait_id: int, *, tenant: Tenant, actor: str, reason: str = "", **more: Any) -> Done:
    """Say yes to what a run asks. See `decide`."""
    return decide(wait_id, tenant=tenant, actor=actor, reason=reason, approved=True, **more)


def refuse(wait_id: int, *, tenant: Tenant, actor: str, reason: str, **more: Any) -> Done:
    """Say no to what a run asks. See `decide`."""
    return decide(wait_id, tenant=tenant, actor=actor, reason=reason, approved=False, **more)


@audited_refusals
def decide(
    wait_id: int, *, tenant: Tenant, actor: str, reason: str, approved: bool | None = None, choice: str = "",
    values: Mapping[str, Any] | None = None, facts_hash: str | None = None, roles: Collection[str] = EVERYBODY,
) -> Done:  # fmt: skip
    """Answer one approval, once. A decision binds to its wait and to what was shown: `facts_hash`, if given.

    Raises TransitionRefused when it was answered or has expired, PlanChanged when it shows other facts by now,
    NotPermitted when somebody else is to decide, InputRefused for what the question does not offer or ask for.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        verb = choice or ("approve" if approved else "refuse")
        wait, run, approval = _open(cursor, wait_id, tenant, verb)
        if facts_hash is not None and facts_hash != wait.facts_hash:
            raise PlanChanged(
                f"what run {run.pk} asks is not what was shown: the facts changed since the page was opened. Nothing "
                "was changed; look at it again.",
                run=run.pk, state=run.state, event=verb, wanted="a decision about what is asked now",
            )  # fmt: skip
        chosen = _chosen(approval, choice, approved)
        _require(approval, run, actor=actor, roles=roles)
        told = _answer(approval, chosen, reason, values)
        if wait.clock:
            questions.answer(cursor, run.pk, wait.pk, yes=chosen["approves"], by=actor, answer=told)
        else:
            detail = f"{_past(chosen)} by {actor}: {wait.name}"
            closing = Closing(state="answered", cause="approval", detail=detail, answer=told, by=actor)
            close_wait(cursor, run_id=run.pk, wait_id=wait.pk, closing=closing)
        _keep(approval, chosen, actor=actor, seen=wait.facts_hash, at=db_now(cursor))
        write(
            cursor, run, verb if chosen in _PLAIN else "decide", actor=actor, reason=reason,
            before={"wait": wait.pk, "name": wait.name, "state": "open"},
            after={"state": "answered", "approved": chosen["approves"], "choice": chosen["name"],
                   "round": approval.round, "facts_hash": wait.facts_hash},
        )  # fmt: skip
        transaction.on_commit(bell.ring)
    run.refresh_from_db(fields=["state"])
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"{wait.name} was {_past(chosen)}.")


@audited_refusals
def delegate(
    wait_id: int, *, tenant: Tenant, actor: str, reason: str, to: str, roles: Collection[str] = EVERYBODY
) -> Done:
    """Ask one member by name. From then on they decide, or an admin; who hands it on must be one who may decide."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run, approval = _open(cursor, wait_id, tenant, "delegate")
        _require(approval, run, actor=actor, roles=roles)
        member = Membership.objects.filter(tenant=tenant, user__username=to, user__is_active=True).first()
        if member is None:
            raise InputRefused(f"{to[:80]!r} is no member of {tenant.slug}.", path="/to")
        if not ROLES[member.role] & deciders_of(approval):
            raise InputRefused(
                f"{to} is {_with_article(member.role)} of {tenant.slug}; {wait.name!r} wants "
                f"{' or '.join(_with_article(role) for role in sorted(deciders_of(approval)))}.", path="/to",
            )  # fmt: skip
        if approval.four_eyes and to == started_by(run):
            raise InputRefused(f"{to} started the run, and somebody else is to decide.", path="/to")
        before = {"delegated_to": approval.delegated_to}
        approval.delegated_to, approval.delegated_by, approval.delegated_at = to, actor, db_now(cursor)
        approval.claimed_by, approval.claimed_at = "", None
        approval.save()
        _write(cursor, wait, run, "delegate", actor=actor, reason=reason, before=before, after={"delegated_to": to})
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"{wait.name} is for {to} now.")


@audited_refusals
def escalate(wait_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Pass it upwards: also those it escalates to may decide, and whoever was asked by name is not waited for."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run, approval = _open(cursor, wait_id, tenant, "escalate")
        if approval.escalated_at:
            raise _refused(wait, run, "escalate", f"one that was not passed on before; {approval.escalated_by} did")
        passed_on(approval, by=actor, at=db_now(cursor))
        after = {"escalated_to": approval.escalate_to}
        _write(cursor, wait, run, "escalate", actor=actor, reason=reason, before={}, after=after)
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"{wait.name} was passed on.")


@audited_refusals
def comment(wait_id: int, *, tenant: Tenant, actor: str, reason: str) -> Done:
    """Note something about an open question, for everybody who looks at it. It stays on the run's timeline."""
    if not reason.strip():
        raise InputRefused("there is nothing to note; write something.", path="/reason")
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run, _ = _open(cursor, wait_id, tenant, "comment")
        _write(cursor, wait, run, "comment", actor=actor, reason=reason, before={}, after={})
    return Done(run_id=run.pk, state=run.state, settled=True, message="it was noted.")


@audited_refusals
def claim(wait_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that this person looks into it. It keeps nobody from deciding."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run, approval = _open(cursor, wait_id, tenant, "claim_approval")
        if approval.claimed_by:
            raise _refused(wait, run, "claim_approval", f"one that nobody is on; {approval.claimed_by} is")
        approval.claimed_by, approval.claimed_at = actor, db_now(cursor)
        approval.save()
        _write(cursor, wait, run, "claim_approval", actor=actor, reason=reason, before={"claimed_by": ""},
               after={"claimed_by": actor})  # fmt: skip
    return Done(run_id=run.pk, state=run.state, settled=True, message="it is yours.")


@audited_refusals
def unclaim(wait_id: int, *, tenant: Tenant, actor: str, reason: str = "") -> Done:
    """Note that nobody looks into it any more; also for somebody else who is away."""
    with transaction.atomic(), connection.cursor() as cursor:
        wait, run, approval = _open(cursor, wait_id, tenant, "unclaim_approval")
        if not approval.claimed_by:
            raise _refused(wait, run, "unclaim_approval", "one that somebody is on")
        before = {"claimed_by": approval.claimed_by}
        approval.claimed_by, approval.claimed_at = "", None
        approval.save()
        _write(cursor, wait, run, "unclaim_approval", actor=actor, reason=reason, before=before,
               after={"claimed_by": ""})  # fmt: skip
    return Done(run_id=run.pk, state=run.state, settled=True, message="it is free again.")


def passed_on(approval: Approval, *, by: str, at: datetime) -> None:
    """Note that those it escalates to may decide, too."""
    approval.escalated_at, approval.escalated_by, approval.escalate_at = at, by, None
    approval.delegated_to, approval.delegated_by, approval.delegated_at = "", "", None
    approval.save()


def _open(cursor: Any, wait_id: int, tenant: Tenant, verb: str) -> tuple[Wait, Run, Approval]:
    """An open question with its run's row locked first, and its record, made if there is none yet."""
    wait = Wait.objects.filter(pk=wait_id, tenant=tenant, kind="approval").first()
    if wait is None:
        raise RunNotFound(f"there is no approval {wait_id} here.")
    run = locked(tenant, wait.run_id)
    wait.refresh_from_db()
    if wait.state != "open":
        when = timezone.localtime(wait.answered_at).isoformat(timespec="seconds") if wait.answered_at else "before"
        by = wait.answered_by or "its clock"
        raise refused(run, verb, f"an open approval; {wait.name!r} was {wait.state} by {by} ({when})")
    if wait.expires_at is not None and wait.expires_at <= db_now(cursor):
        at = wait.expires_at.isoformat(timespec="seconds")
        raise refused(run, verb, f"an approval in time; {wait.name!r} expired at {at}")
    approval = Approval.objects.select_for_update(no_key=True).filter(pk=wait.pk).first() or terms_of(wait)
    if approval._state.adding:
        approval.save(force_insert=True)
    return wait, run, approval


def _require(approval: Approval, run: Run, *, actor: str, roles: Collection[str]) -> None:
    if needed := why_not(approval, run, actor=actor, roles=roles):
        raise NotPermitted(f"this is for {needed}. Nothing was changed.", needs=needed)


def _chosen(approval: Approval, name: str, approved: bool | None) -> dict[str, Any]:
    known = choices_of(approval)
    found = [one for one in known if (one["name"] == name if name else one["approves"] == approved)]
    if approved is not None and name:
        found = [one for one in found if one["approves"] == approved]
    if len(found) != 1:
        offered = ", ".join(one["name"] for one in known if approved is None or one["approves"] == approved)
        raise InputRefused(f"say which: {offered}.", path="/choice")
    return found[0]


def _answer(approval: Approval, chosen: Mapping[str, Any], reason: str, values: Mapping[str, Any] | None) -> str:
    """The answer as the step reads it. A no wants a reason, a yes the form."""
    if not chosen["approves"] and not reason.strip():
        raise InputRefused("say why: the step and the audit keep the reason.", path="/reason")
    told: dict[str, Any] = {"approved": chosen["approves"], "comment": kept_reason(reason)}
    if chosen not in _PLAIN:
        told["choice"] = chosen["name"]
    if chosen["approves"] and (approval.fields or values):
        told["values"] = forms.read(approval.fields, values or {})
    try:
        return codec.dumps(told, what="answer", max_bytes=get_conf().payload_max_bytes)
    except PayloadRefused as wrong:
        raise InputRefused(wrong.detail, path=wrong.path) from None


def _keep(approval: Approval, chosen: Mapping[str, Any], *, actor: str, seen: str, at: datetime) -> None:
    approval.choice, approval.decided_by, approval.decided_at = chosen["name"], actor, at
    approval.seen_hash, approval.remind_at, approval.escalate_at = seen, None, None
    approval.save()


def _past(chosen: Mapping[str, Any]) -> str:
    if chosen in _PLAIN:
        return f"{chosen['name']}d"
    return f"answered with “{chosen['label']}”"


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "aeio" else f"a {role}"


def _refused(wait: Wait, run: Run, verb: str, wanted: str) -> TransitionRefused:
    return refused(run, verb, f"{wanted} ({wait.name!r})")


def _write(
    cursor: Any, wait: Wait, run: Run, verb: str, *, actor: str, reason: str, before: dict[str, Any],
    after: dict[str, Any],
) -> None:  # fmt: skip
    facts = {"wait": wait.pk, "name": wait.name}
    write(cursor, run, verb, actor=actor, reason=reason, before={**facts, **before}, after={**facts, **after})

"""Questions to people over the API: listed, read with their form, decided, bound to the facts that were shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from durableops.access import VERBS, Permission, deciding_roles
from durableops.api import approval_schemas as shapes
from durableops.api.auth import Client, client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import ApprovalRequest, RefusalRequest, VerbDone, VerbRequest
from durableops.api.shaping import document
from durableops.api.verbs import done
from durableops.engine import commands, deciding
from durableops.errors import InputRefused, RunNotFound
from durableops.masking import mask_text
from runs.models import Approval, RunEvent, Wait

COMMENTS_SHOWN = 100
LARGEST_ID = 2**63 - 1

router = Router(tags=["approvals"])


def _verb[V: Callable[..., Status[VerbDone]]](name: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:wait_id}}/{name}",
        response={200: VerbDone, **REFUSALS},
        operation_id=f"{name}_approval",
        summary=summary,
        **asks(VERBS[name]),
    )
    return decorate


@router.get(
    "", response={200: shapes.ApprovalPage, **REFUSALS}, operation_id="list_approvals",
    summary="List what runs ask people", **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, query: Annotated[shapes.ApprovalQuery, Query()]) -> shapes.ApprovalPage:
    """Open questions, oldest first."""
    client = client_of(request)
    if unknown := sorted(set(request.GET) - shapes.ApprovalQuery.model_fields.keys()):
        raise InputRefused(
            f"{unknown[0][:80]!r} is not a parameter; there are: {', '.join(shapes.ApprovalQuery.model_fields)}.",
            path=unknown[0][:80], place="query",
        )  # fmt: skip
    rows = _rows(client).filter(state="open", pk__gt=query.after).order_by("pk")
    found = list(rows.defer("facts")[: query.limit + 1])
    shown = found[: query.limit]
    following = shown[-1].pk if len(found) > query.limit else None
    return shapes.ApprovalPage(approvals=[shapes.Approval(**_shown(row)) for row in shown], next=following)


@router.get(
    "/{int:wait_id}", response={200: shapes.ApprovalDetail, **REFUSALS}, operation_id="get_approval",
    summary="Read one question with its form", **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, wait_id: int) -> shapes.ApprovalDetail:
    """One question: what may be said, what is to be filled in, what people noted, and the decision, if there is one."""
    client = client_of(request)
    row = _rows(client).filter(pk=_known(wait_id)).first()
    if row is None:
        raise RunNotFound(f"there is no approval {wait_id} here.")
    terms = deciding.terms_of(row)
    noted = RunEvent.objects.filter(run_id=row.run_id, event="comment", data__wait=row.pk).order_by("id")
    roles = deciding_roles(client.permissions)
    return shapes.ApprovalDetail(
        **_shown(row), facts=document(row.facts) if client.sees_payloads and row.facts else None,
        choices=[shapes.ApprovalChoice(**one) for one in deciding.choices_of(terms)],
        form=[shapes.FormField(**one) for one in terms.fields],
        comments=[
            shapes.ApprovalComment(by=one.actor, at=one.at, text=mask_text(one.reason))
            for one in noted[:COMMENTS_SHOWN]
        ],
        why_not=deciding.why_not(terms, row.run, actor=client.actor, roles=roles),
    )  # fmt: skip


@_verb("approve", "Approve what a run asks")
def approve(request: HttpRequest, wait_id: int, body: ApprovalRequest) -> Status[VerbDone]:
    """Approve what a run asks, once, with what its form asks for.

    Refused (409) if it was answered, has expired, or shows other facts by now; 403 if somebody else is to decide.
    """
    return _done(
        request, wait_id, commands.approve, reason=body.reason, facts_hash=body.facts_hash, choice=body.choice,
        values=body.values,
    )  # fmt: skip


@_verb("refuse", "Refuse what a run asks")
def refuse(request: HttpRequest, wait_id: int, body: RefusalRequest) -> Status[VerbDone]:
    """Refuse what a run asks, once, with a reason."""
    return _done(request, wait_id, commands.refuse, reason=body.reason, facts_hash=body.facts_hash, choice=body.choice)


@_verb("delegate", "Ask somebody by name to decide")
def delegate(request: HttpRequest, wait_id: int, body: shapes.DelegateRequest) -> Status[VerbDone]:
    """Ask one member by name. From then on they decide, or an admin."""
    return _done(request, wait_id, deciding.delegate, reason=body.reason, to=body.to)


@_verb("escalate", "Pass a question on")
def escalate(request: HttpRequest, wait_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Let those it escalates to decide, too."""
    client = client_of(request)
    return done(deciding.escalate(_known(wait_id), tenant=client.tenant, actor=client.actor, reason=body.reason))


@_verb("comment", "Note something about a question")
def comment(request: HttpRequest, wait_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Note something for everybody who looks at it; `reason` is the note."""
    client = client_of(request)
    return done(deciding.comment(_known(wait_id), tenant=client.tenant, actor=client.actor, reason=body.reason))


def _done(request: HttpRequest, wait_id: int, verb: Callable[..., Any], **more: Any) -> Status[VerbDone]:
    client = client_of(request)
    roles = deciding_roles(client.permissions)
    return done(verb(_known(wait_id), tenant=client.tenant, actor=client.actor, roles=roles, **more))


def _rows(client: Client) -> Any:
    return Wait.objects.select_related("approval", "run__tenant").filter(tenant=client.tenant, kind="approval")


def _known(wait_id: int) -> int:
    if wait_id > LARGEST_ID:
        raise RunNotFound(f"there is no approval {str(wait_id)[:20]}… here.")
    return wait_id


def _shown(row: Wait) -> dict[str, Any]:
    terms: Approval = deciding.terms_of(row)
    return {
        "id": row.pk, "run": row.run_id, "workflow": row.run.workflow, "step": row.step_id, "name": row.name,
        "key": row.author_key, "round": terms.round, "question": mask_text(row.question), "facts_hash": row.facts_hash,
        "state": row.state, "asked_at": row.opened_at, "expires_at": row.expires_at, "on_timeout": row.on_timeout,
        "roles": sorted(deciding.deciders_of(terms)), "four_eyes": terms.four_eyes, "delegated_to": terms.delegated_to,
        "escalated_at": terms.escalated_at, "reminders": terms.reminders, "claimed_by": terms.claimed_by,
        "choice": terms.choice, "decided_by": terms.decided_by, "decided_at": terms.decided_at,
    }  # fmt: skip

"""What a run asks people: the form, the decision, bound to the facts that were shown, and handing the question on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse

from durableops.access import GRANTS, Permission
from durableops.authoring import forms
from durableops.console import asking, payloads
from durableops.console.http import ConsoleRequest, context_for, page
from durableops.console.views.verbs import answered, dialog
from durableops.engine import deciding
from durableops.engine.commands import Done
from durableops.errors import InputRefused, NotPermitted, PlanChanged, TransitionRefused
from runs.models import Membership, Run, Wait

_DECISIONS = {"approve": True, "refuse": False, "decide": None}
_HANDING_ON: dict[str, Callable[..., Done]] = {
    "delegate": deciding.delegate,
    "escalate": deciding.escalate,
    "comment": deciding.comment,
}
MOST_MEMBERS = 200


@page("GET", "POST", permission=Permission.VIEW)
def decide(request: ConsoleRequest, run_id: UUID, wait_id: int, verb: str) -> HttpResponse:
    """Decide what a run asks, hand it to somebody, pass it on, or note something about it."""
    run = request.access.run(run_id)
    wait = Wait.objects.select_related("approval").filter(pk=wait_id, run=run, kind="approval").first()
    if wait is None or not (verb in _DECISIONS or verb in _HANDING_ON):
        raise Http404("There is no such approval.")
    _require(request, run, wait)
    if request.method == "GET":
        return _ask(request, run, wait, verb)
    try:
        done = _do(request, run, wait, verb)
    except (PlanChanged, InputRefused) as wrong:
        status = 409 if isinstance(wrong, PlanChanged) else 422
        wait = Wait.objects.select_related("approval").get(pk=wait.pk)
        return _ask(request, run, wait, verb, wrong=str(wrong), path=getattr(wrong, "path", ""), status=status)
    except TransitionRefused as refused:
        return answered(request, run, _raising(refused), "Done:")
    return answered(request, run, lambda: done, "Done:")


def _do(request: ConsoleRequest, run: Run, wait: Wait, verb: str) -> Done:
    who: dict[str, Any] = {
        "tenant": run.tenant, "actor": request.access.actor, "reason": request.POST.get("reason", "").strip(),
    }  # fmt: skip
    roles = request.access.deciding_roles(run.tenant_id)
    if verb == "delegate":
        return deciding.delegate(wait.pk, **who, to=request.POST.get("to", "").strip(), roles=roles)
    if verb in _HANDING_ON:
        return _HANDING_ON[verb](wait.pk, **who)
    approval = deciding.terms_of(wait)
    chosen = request.POST.get("choice", "")
    no = _DECISIONS[verb] is False or any(
        one["name"] == chosen and not one["approves"] for one in deciding.choices_of(approval)
    )
    return deciding.decide(
        wait.pk, **who, approved=_DECISIONS[verb], choice=chosen, facts_hash=request.POST.get("facts_hash", ""),
        values=None if no else forms.typed(approval.fields, request.POST), roles=roles,
    )  # fmt: skip


def _require(request: ConsoleRequest, run: Run, wait: Wait) -> None:
    """Only who may decide sees what is decided about."""
    roles = request.access.deciding_roles(run.tenant_id)
    if needed := deciding.why_not(deciding.terms_of(wait), run, actor=request.access.actor, roles=roles):
        raise NotPermitted(f"this is for {needed}. Nothing was changed.", needs=needed)


def _ask(
    request: ConsoleRequest, run: Run, wait: Wait, verb: str, *, wrong: str = "", path: str = "", status: int = 0
) -> HttpResponse:
    approval = deciding.terms_of(wait)
    typed = {key: str(value) for key, value in request.POST.items()} if request.method == "POST" else None
    wanted = _DECISIONS.get(verb)
    context = {
        **context_for(request, "runs"), "run": run, "wait": wait, "verb": verb, "wrong": wrong, "approval": approval,
        "facts": payloads.facts_of(wait.facts), "reason": request.POST.get("reason", ""),
        "choices": [one for one in deciding.choices_of(approval) if wanted is None or one["approves"] == wanted],
        "inputs": [] if verb == "refuse" else asking.inputs(approval.fields, typed, path),
        "comments": asking.comments(wait), "who": deciding.who(approval), "in_form": path and path != "/reason",
        "members": _members(run, approval) if verb == "delegate" else [], "to": request.POST.get("to", ""),
    }  # fmt: skip
    name = "decide" if verb in _DECISIONS else "hand_on"
    return dialog(request, name, context, status=status or (422 if wrong else 200))


def _members(run: Run, approval: Any) -> list[str]:
    """Who may be asked by name."""
    wanted = deciding.deciders_of(approval)
    roles = [role for role in GRANTS if deciding.ROLES[role] & wanted]
    rows = Membership.objects.filter(tenant=run.tenant, role__in=roles, user__is_active=True)
    found = list(rows.order_by("user__username").values_list("user__username", flat=True)[:MOST_MEMBERS])
    return [name for name in found if not (approval.four_eyes and name == deciding.started_by(run))]


def _raising(error: TransitionRefused) -> Callable[[], Done]:
    def again() -> Done:
        raise error

    return again

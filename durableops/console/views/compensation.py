"""One compensation: the effect, how it is undone, how far that is, and what a person may decide about it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops.access import Permission
from durableops.console import payloads, undoing
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.errors import InputRefused, TransitionRefused
from runs.models import Compensation, RunEvent

SHOWN_EVENTS = 50
SEARCHED_EVENTS = 2000


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest, compensation_id: int) -> HttpResponse:
    """The page."""
    return _answer(request, _find(request, compensation_id))


@page("POST", permission=Permission.SIGNED_IN)
def decide(request: ConsoleRequest, compensation_id: int, verb: str) -> HttpResponse:
    """Agree, send back, say that it is undone, let it be tried again, or waive it."""
    one = _find(request, compensation_id)
    choice = undoing.CHOICES.get(verb)
    if choice is None:
        raise Http404("There is nothing of this kind to decide.")
    request.access.require_verb("decide_compensation", one.tenant)
    given: dict[str, Any] = {"reason": request.POST.get("reason", "").strip()}
    if choice.asks_evidence:
        given |= {"evidence": request.POST.get("evidence", ""), "downstream_id": request.POST.get("downstream_id", "")}
    try:
        done = choice.do(one.pk, tenant=one.tenant, actor=request.access.actor, **given)
    except (TransitionRefused, InputRefused) as refused:
        status = 409 if isinstance(refused, TransitionRefused) else 422
        return _answer(request, _find(request, compensation_id), wrong=str(refused), tried=verb, status=status)
    said(request, f"{choice.label}: {done.message}")
    return redirect("console:compensation", compensation_id=one.pk)


def _find(request: ConsoleRequest, compensation_id: int) -> Compensation:
    found = (
        Compensation.objects.select_related("effect", "run__plan", "tenant", "linked_run", "undo_effect", "order")
        .filter(pk=compensation_id, tenant_id__in=request.access.tenant_ids)
        .first()
    )
    if found is None:
        raise Http404("There is no such compensation.")
    return found


def _answer(
    request: ConsoleRequest, one: Compensation, *, wrong: str = "", tried: str = "", status: int = 200
) -> HttpResponse:
    sight = request.access.sees_payloads(one.tenant_id)
    # Undoing comes after all that the run did; a run with a million events is not searched for it.
    newest = RunEvent.objects.filter(run=one.run).order_by("-id").values("pk")[:SEARCHED_EVENTS]
    told = RunEvent.objects.filter(pk__in=newest, data__compensation=one.pk).order_by("-id")[:SHOWN_EVENTS]
    context = {
        **context_for(request, "inbox"), "one": one, "effect": one.effect,
        "offers": undoing.offers(one, request.access),
        "asked": payloads.show("request", one.effect.request_summary or None, sight=sight),
        "result": payloads.show("result", one.effect.result, sight=sight), "told": told, "wrong": wrong,
        "tried": tried, "given": request.POST,
    }  # fmt: skip
    return render(request, "console/compensation/page.html", context, status=status)

"""One doubt: what was sent, why nobody knows, and the dialogs in which a person says what became of it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render

from durableops.access import Permission
from durableops.checkpoints.codec import parse_input
from durableops.conf import get_conf
from durableops.console import doubting
from durableops.console.doubting import ASKS, Ask
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.views.verbs import dialog
from durableops.engine import doubts, guard, settling
from durableops.engine.acting import Done
from durableops.engine.settlements import Settlement
from durableops.errors import InputRefused, PlanChanged, TransitionRefused
from runs.models import Doubt

_CLAIMS = {"claim": doubts.claim, "unclaim": doubts.unclaim}


@page("GET", permission=Permission.VIEW)
def show(request: ConsoleRequest, doubt_id: int) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    return _shown(request, _find(request, doubt_id))


@page("GET", "POST", permission=Permission.VIEW)
def act(request: ConsoleRequest, doubt_id: int, verb: str) -> HttpResponse:
    """Settle it, release its queue, ask its probe, claim it or let go of it."""
    doubt = _find(request, doubt_id)
    if verb in _CLAIMS:
        return _claim(request, doubt, verb)
    ask = ASKS.get(verb)
    if ask is None:
        raise Http404("There is nothing of this kind to say.")
    request.access.require_verb(ask.verb, doubt.tenant)
    if request.method == "GET":
        return _ask(request, doubt, ask)
    if ask.needs_reason and not request.POST.get("reason", "").strip():
        return _ask(request, doubt, ask, wrong="Say why: the reason stands in the audit.")
    try:
        done = _do(request, doubt, ask)
    except InputRefused as refused:
        return _ask(request, doubt, ask, wrong=str(refused))
    except PlanChanged as changed:
        return _ask(request, _find(request, doubt_id), ask, wrong=str(changed), status=409)
    except TransitionRefused as refused:
        return _shown(request, _find(request, doubt_id), text=str(refused), status=409)
    return _done(request, doubt_id, f"{ask.label}: {done.message}")


def _claim(request: ConsoleRequest, doubt: Doubt, verb: str) -> HttpResponse:
    request.access.require_verb(f"{verb}_doubt", doubt.tenant)
    if request.method == "GET":
        return HttpResponseNotAllowed(["POST"])
    try:
        _CLAIMS[verb](doubt.pk, tenant=doubt.tenant, actor=request.access.actor)
    except TransitionRefused as refused:
        return _shown(request, _find(request, doubt.pk), text=str(refused), status=409)
    return _done(request, doubt.pk, "It is yours." if verb == "claim" else "It is free again.")


def _do(request: ConsoleRequest, doubt: Doubt, ask: Ask) -> Done:
    who: dict[str, Any] = {"tenant": doubt.tenant, "actor": request.access.actor}
    who["reason"] = request.POST.get("reason", "").strip()
    if ask.how == "probe":
        return doubts.ask_probe(doubt.pk, **who)
    if ask.how == "release":
        return settling.release(doubt.pk, **who)
    plan_hash = request.POST.get("plan_hash", guard.UNSEEN)
    return settling.settle(doubt.pk, settlement=_settlement(request, ask), plan_hash=plan_hash, **who)


def _settlement(request: ConsoleRequest, ask: Ask) -> Settlement:
    """What the form says. Raises InputRefused."""
    text = request.POST.get("result", "").strip() if ask.how == "happened" else ""
    return Settlement(
        how=ask.how, downstream_id=request.POST.get("downstream_id", "") if ask.asks_id else "",
        evidence=request.POST.get("evidence", "") if ask.asks_evidence else "", has_result=bool(text),
        result=parse_input(text, max_bytes=get_conf().payload_max_bytes) if text else None,
    )  # fmt: skip


def _find(request: ConsoleRequest, doubt_id: int) -> Doubt:
    found = (
        Doubt.objects.select_related("effect", "run__plan", "tenant")
        .filter(pk=doubt_id, tenant_id__in=request.access.tenant_ids)
        .first()
    )
    if found is None:
        raise Http404("There is no such doubt.")
    return found


def _ask(request: ConsoleRequest, doubt: Doubt, ask: Ask, *, wrong: str = "", status: int = 0) -> HttpResponse:
    offers = doubting.offers(doubt, request.access)
    context = {
        **context_for(request, "inbox"), "doubt": doubt, "effect": doubt.effect, "run": doubt.run, "ask": ask,
        "offer": offers.of(ask.name), "plan_hash": offers.plan_hash, "wrong": wrong, "given": request.POST,
    }  # fmt: skip
    return dialog(request, "settle", context, status=status or (422 if wrong else 200))


def _done(request: ConsoleRequest, doubt_id: int, text: str) -> HttpResponse:
    if request.htmx:
        return _shown(request, _find(request, doubt_id), text=text)
    said(request, text)
    return redirect("console:doubt", doubt_id=doubt_id)


def _shown(request: ConsoleRequest, doubt: Doubt, *, text: str = "", status: int = 200) -> HttpResponse:
    """The doubt as it is now, with one sentence about what was just done or refused."""
    kind = "info" if status == 200 else "error"
    context = {**context_for(request, "inbox"), **doubting.page(doubt, request.access), "said": text, "said_kind": kind}
    if not request.htmx:
        return render(request, "console/doubt/page.html", context, status=status)
    response = render(request, "console/doubt/_region.html", context, status=status)
    if text:
        response["HX-Trigger"] = "verb-done"
    return response

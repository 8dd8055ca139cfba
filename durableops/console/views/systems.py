"""Legacy systems: their queues, what holds them, how calls went; pausing, resuming, and moving one's own calls."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops.access import VERBS, Permission
from durableops.console import systems
from durableops.console.access import WHO, NotAllowed
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.systems import Place
from durableops.console.views.verbs import dialog
from durableops.engine import guard, system_view
from durableops.engine import systems as engine
from durableops.engine.system_view import Seen
from durableops.errors import InputRefused, PlanChanged, TransitionRefused
from runs.models import Doubt, IdempotencyRecord, Tenant

_VERBS = {"pause": "pause_system", "resume": "resume_system"}


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """Every system, or with `HX-Request` the live region."""
    found = system_view.systems(request.access.tenant_ids)
    context = {
        **context_for(request, "systems"), "systems": [(one, systems.stands(one)) for one in found],
        "cap": system_view.COUNT_CAP,
    }  # fmt: skip
    return render(request, f"console/systems/{'_list' if request.htmx else 'list'}.html", context)


@page("GET", permission=Permission.VIEW)
def one(request: ConsoleRequest, name: str) -> HttpResponse:
    """One system, or with `HX-Request` its live region."""
    return _shown(request, _find(request, name))


@page("GET", "POST", permission=Permission.ADMINISTER)
def act(request: ConsoleRequest, name: str, verb: str) -> HttpResponse:
    """Pause a system, or let it go on."""
    seen, engine_verb = _find(request, name), _VERBS.get(verb)
    if engine_verb is None:
        raise Http404("There is no such verb.")
    tenant = systems.whose(name, engine_verb, request.access)
    if tenant is None:
        raise NotAllowed(VERBS[engine_verb], request.access.tenants[0].slug)
    if request.method == "GET":
        return _ask(request, seen, verb)
    reason = request.POST.get("reason", "").strip()
    if verb == "pause" and not reason:
        return _ask(request, seen, verb, wrong="Say why: whoever finds calls waiting reads it.")
    who: dict[str, Any] = {"tenant": tenant, "actor": request.access.actor, "reason": reason}
    try:
        if verb == "pause":
            engine.pause(name, **who)
        else:
            engine.resume(name, **who, shown=request.POST.get("pause", ""))
    except TransitionRefused as refused:
        return _shown(request, _find(request, name), text=str(refused), status=409)
    return _done(request, name, "Nothing goes there any more." if verb == "pause" else "Calls go there again.")


@page("GET", "POST", permission=Permission.VIEW)
def move(request: ConsoleRequest, effect_id: int) -> HttpResponse:
    """Give a call that waits another place among those of its tenant."""
    effect = _call(request, effect_id)
    request.access.require_verb("move_call", effect.tenant)
    if request.method == "GET":
        return _ask_place(request, effect)
    reason, to = request.POST.get("reason", "").strip(), request.POST.get("to", "")
    if not reason:
        return _ask_place(request, effect, wrong="Say why: the reason stands in the audit.")
    try:
        done = engine.move(
            effect.pk, tenant=effect.tenant, actor=request.access.actor, reason=reason, to=to,
            plan_hash=request.POST.get("plan_hash") or guard.UNSEEN,
        )  # fmt: skip
    except InputRefused as refused:
        return _ask_place(request, effect, wrong=str(refused))
    except PlanChanged as changed:
        return _ask_place(request, effect, wrong=str(changed), status=409)
    except TransitionRefused as refused:
        return _shown(request, _find(request, effect.system), text=str(refused), status=409)
    return _done(request, effect.system, f"{effect.tool} for {effect.resource}: {done.message}")


def _find(request: ConsoleRequest, name: str) -> Seen:
    found = next((one for one in system_view.systems(request.access.tenant_ids) if one.name == name), None)
    if found is None:
        raise Http404("There is no such system.")
    return found


def _call(request: ConsoleRequest, effect_id: int) -> IdempotencyRecord:
    rows = IdempotencyRecord.objects.select_related("tenant").defer("result")
    found = rows.filter(pk=effect_id, tenant_id__in=request.access.tenant_ids, safety="legacy").first()
    if found is None:
        raise Http404("There is no such call in a queue.")
    return found


def _ask(request: ConsoleRequest, seen: Seen, verb: str, *, wrong: str = "") -> HttpResponse:
    context = {
        **context_for(request, "systems"), "one": seen, "name": seen.name, "verb": verb,
        "fits": seen.paused == (verb == "resume"), "wrong": wrong, "reason": request.POST.get("reason", ""),
        "pause": engine.pause_of(seen.paused_at),
        "cap": system_view.COUNT_CAP,
    }  # fmt: skip
    return dialog(request, "system", context, status=422 if wrong else 200)


def _ask_place(
    request: ConsoleRequest, effect: IdempotencyRecord, *, wrong: str = "", status: int = 0
) -> HttpResponse:  # fmt: skip
    queue = systems.places(system_view.queue(effect.system, [effect.tenant_id]), request.access)
    own = [place.call.effect_id for place in queue]
    context = {
        **context_for(request, "systems"), "effect": effect, "name": effect.system, "wrong": wrong,
        "reason": request.POST.get("reason", ""), "to": request.POST.get("to", "first"), "most": system_view.MOST_SHOWN,
        "place": next((place for place in queue if place.call.effect_id == effect.pk), None),
        "plan_hash": engine.place_hash(effect.pk, own) if effect.pk in own else "",
        "places": [("first", "to the front"), ("up", "one earlier"), ("down", "one later"), ("last", "to the end")],
    }  # fmt: skip
    return dialog(request, "move", context, status=status or (422 if wrong else 200))


def _done(request: ConsoleRequest, name: str, text: str) -> HttpResponse:
    if request.htmx:
        return _shown(request, _find(request, name), text=text)
    said(request, text)
    return redirect("console:system", name=name)


def _shown(request: ConsoleRequest, seen: Seen, *, text: str = "", status: int = 200) -> HttpResponse:
    """The system as it is now, with one sentence about what was just done or refused."""
    context = {**_context(request, seen), "said": text, "said_kind": "info" if status == 200 else "error"}
    if not request.htmx:
        return render(request, "console/systems/system.html", context, status=status)
    response = render(request, "console/systems/_system.html", context, status=status)
    if text:
        response["HX-Trigger"] = "verb-done"
    return response


def _context(request: ConsoleRequest, seen: Seen) -> dict[str, Any]:
    access, verb = request.access, "resume" if seen.paused else "pause"
    tenants = access.tenant_ids
    queue: list[Place] = systems.places(system_view.queue(seen.name, tenants), access)
    holding = seen.holder.effect_id if seen.holder is not None else 0
    admin: Tenant | None = systems.whose(seen.name, _VERBS[verb], access)
    doubts = systems.doubts(seen.name, tenants)
    return {
        **context_for(request, "systems"), "one": seen, "state": systems.stands(seen), "queue": queue,
        "doubts": doubts, "holding": Doubt.objects.filter(effect=holding, settled_at=None).first() if holding else None,
        "calls": systems.calls(seen.name, tenants), "newest_calls": systems.NEWEST_CALLS, "verb": verb,
        "why_not": "" if admin is not None else f"needs {WHO[VERBS[_VERBS[verb]]]} of a tenant that uses it",
        "cap": system_view.COUNT_CAP, "most": system_view.MOST_SHOWN, "several_tenants": len(access.tenants) > 1,
        "most_doubts": systems.DOUBTS_SHOWN,
    }  # fmt: skip

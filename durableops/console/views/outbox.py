"""The Outbox: destinations and their lanes, one message with what can be done about it, and the verbs of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops import clock
from durableops.access import VERBS, Permission
from durableops.console import outbox, payloads
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.engine import messages
from durableops.engine.acting import Done
from durableops.errors import TransitionRefused
from runs.models import OutboxBody, OutboxMessage, RunEvent, Tenant

NEWEST_EVENTS = 5000
"""Of the run, among which those about a message are looked for."""
_MESSAGE_VERBS: dict[str, Callable[..., Done]] = {
    "retry_message": messages.retry_message,
    "redeliver": messages.redeliver,
    "skip_message": messages.skip_message,
}
_TOLD = ("effects_repeated", "message_poisoned", "message_skipped", "late_result_rejected", *_MESSAGE_VERBS)
_DESTINATION_VERBS: dict[str, Callable[..., bool]] = {
    "stop_destination": messages.stop_destination,
    "let_go_on": messages.let_destination_go_on,
}


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    template = "console/outbox/_region.html" if request.htmx else "console/outbox/page.html"
    return render(request, template, _context(request))


@page("POST", permission=Permission.SETTLE)
def destination_verb(request: ConsoleRequest, verb: str) -> HttpResponse:
    """Stop deliveries to a destination, or let them go on."""
    command, tenant = _DESTINATION_VERBS.get(verb), _tenant(request, request.POST.get("tenant", ""))
    if command is None:
        raise Http404("There is no such verb.")
    request.access.require_verb(verb, tenant)
    name, reason = request.POST.get("destination", "")[:300], request.POST.get("reason", "").strip()
    if verb == "stop_destination" and not reason:
        shown = {**_context(request), "wrong": "Say why: whoever finds messages waiting reads it."}
        return render(request, "console/outbox/page.html", shown, status=422)
    if command(name, tenant=tenant, actor=request.access.actor, reason=reason):
        done = "Nothing leaves to it any more." if verb == "stop_destination" else "It is tried now."
        said(request, done)
        return redirect(f"{reverse('console:outbox')}?{_query(tenant=tenant.slug, destination=name)}")
    shown = {**_context(request), "wrong": "It was so already. Nothing was changed."}
    return render(request, "console/outbox/page.html", shown, status=409)


@page("GET", permission=Permission.VIEW)
def message(request: ConsoleRequest, message_id: int) -> HttpResponse:
    """One message: what it says, how often it was sent, why it is where it is, and what can be done."""
    return render(request, "console/outbox/message.html", _message_context(request, _find(request, message_id)))


@page("POST", permission=Permission.SETTLE)
def message_verb(request: ConsoleRequest, message_id: int, verb: str) -> HttpResponse:
    """Have a message tried now, sent again, or skipped."""
    found, command = _find(request, message_id), _MESSAGE_VERBS.get(verb)
    if command is None:
        raise Http404("There is no such verb.")
    request.access.require_verb(verb, found.tenant)
    reason = request.POST.get("reason", "").strip()
    if not reason:
        context = {**_message_context(request, found), "wrong": "Say why: the reason stands in the audit."}
        return render(request, "console/outbox/message.html", context, status=422)
    try:
        done = command(found.pk, tenant=found.tenant, actor=request.access.actor, reason=reason)
    except TransitionRefused as refused:
        context = {**_message_context(request, _find(request, message_id)), "wrong": str(refused)}
        return render(request, "console/outbox/message.html", context, status=409)
    said(request, f"Message {found.pk} {done.message}")
    return redirect("console:message", message_id=found.pk)


def _context(request: ConsoleRequest) -> dict[str, Any]:
    access, now = request.access, clock.db_now()
    found = outbox.destinations(access.tenant_ids, now=now)
    slug, name = request.GET.get("tenant", ""), request.GET.get("destination", "")[:300]
    chosen = next((one for one in found if (one.tenant, one.name) == (slug, name)), None)
    cursor = request.GET.get("after", "")[:100]
    context = {
        **context_for(request, "outbox"), "destinations": [(one, _query(tenant=one.tenant, destination=one.name))
                                                           for one in found],
        "several_tenants": len(access.tenants) > 1, "relays": outbox.relays(), "chosen": chosen, "now": now,
        "most": outbox.MOST_DESTINATIONS, "cap": outbox.COUNT_CAP, "query": "",
    }  # fmt: skip
    if chosen is None:
        return context
    here = {"tenant": chosen.tenant, "destination": chosen.name}
    lanes = outbox.lanes(chosen.tenant_id, chosen.name, cursor=cursor)
    return {
        **context, "lanes": lanes, "may": access.may(VERBS["stop_destination"], chosen.tenant_id),
        "query": _query(**here, **({"after": cursor} if cursor else {})), "first": _query(**here) if cursor else "",
        "following": _query(**here, after=lanes.following) if lanes.following else "",
    }  # fmt: skip


def _message_context(request: ConsoleRequest, found: OutboxMessage) -> dict[str, Any]:
    sight = request.access.sees_payloads(found.tenant_id)
    body = OutboxBody.objects.get(pk=found.effect_id)
    under_way = found.lane.claimed_at is not None and found.lane.claimed_at == found.attempted_at
    newest = RunEvent.objects.filter(run_id=found.lane.run_id).order_by("-pk").values("pk")[:NEWEST_EVENTS]
    told = RunEvent.objects.filter(pk__in=newest, event__in=_TOLD, data__message=found.pk).order_by("-pk")[:50]
    return {
        **context_for(request, "outbox"), "message": found, "effect": found.effect, "lane": found.lane,
        "run": found.lane.run, "under_way": under_way, "told": told,
        "holds": found.lane.held_by == found.pk, "gone": body.body is None and not body.open_messages,
        "label": _label(found), "body": payloads.show("message", body.body, sight=sight),
        "may": request.access.may(VERBS["retry_message"], found.tenant_id),
        "behind": found.lane.depth - 1 if found.state in ("pending", "poisoned") else 0,
        "where": _query(tenant=found.tenant.slug, destination=found.lane.destination),
    }  # fmt: skip


def _label(found: OutboxMessage) -> str:
    return outbox.shown_host(found.endpoint.url) if found.endpoint is not None else found.lane.destination


def _find(request: ConsoleRequest, message_id: int) -> OutboxMessage:
    found = (
        OutboxMessage.objects.select_related("lane__run", "effect", "tenant", "endpoint").filter(pk=message_id).first()
    )
    if found is None or found.tenant not in request.access.tenants:
        raise Http404("There is no such message.")
    return found


def _tenant(request: ConsoleRequest, slug: str) -> Tenant:
    tenant = next((one for one in request.access.tenants if one.slug == slug), None)
    if tenant is None:
        raise Http404("There is no such tenant.")
    return tenant


def _query(**conditions: str) -> str:
    made = QueryDict(mutable=True)
    made.update(conditions)
    return made.urlencode()

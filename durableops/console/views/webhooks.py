"""Webhook endpoints of one tenant, for its admins: made, changed, disabled, removed, secrets rotated; deliveries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops import clock
from durableops.access import Permission
from durableops.authoring import registry
from durableops.console import outbox
from durableops.console.http import ConsoleRequest, chosen, context_for, page, said, status_of
from durableops.engine import endpoints
from durableops.errors import DurableOpsError, EndpointNotFound, InputRefused
from runs.models import OutboxDestination, Tenant, WebhookEndpoint


@page("GET", "POST", permission=Permission.ADMINISTER)
def show(request: ConsoleRequest, slug: str) -> HttpResponse:
    """The endpoints; POST makes one and shows its secret, here and never again."""
    tenant = request.access.tenant_to_administer(slug)
    if request.method == "GET":
        return _answer(request, tenant)
    given = request.POST
    try:
        issued = endpoints.create(
            given.get("url", "").strip(), tenant=tenant, actor=request.access.actor,
            event_types=given.get("event_types", "").replace(",", " ").split(),
            description=given.get("description", ""),
        )  # fmt: skip
    except InputRefused as refused:
        return _answer(request, tenant, wrong=str(refused), status=422, given=given)
    return _answer(request, tenant, secret=issued.secret, made=issued.endpoint)


@page("GET", "POST", permission=Permission.ADMINISTER)
def endpoint(request: ConsoleRequest, slug: str, endpoint_id: UUID) -> HttpResponse:
    """One endpoint with its last deliveries; POST does one thing to it."""
    tenant = request.access.tenant_to_administer(slug)
    found = _find(tenant, endpoint_id)
    if request.method == "GET":
        return _one(request, tenant, found)
    act = chosen(request, _ACTS)
    try:
        text, secret = act(request, tenant, found)
    except DurableOpsError as refused:
        return _one(request, tenant, found, wrong=str(refused), status=status_of(refused))
    if secret:
        return _one(request, tenant, _find(tenant, endpoint_id), secret=secret)
    said(request, text)
    if request.POST.get("act") == "remove":
        return redirect("console:webhooks", slug=tenant.slug)
    return redirect("console:webhook", slug=tenant.slug, endpoint_id=found.pk)


def _change(request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint) -> tuple[str, str]:
    given = request.POST
    endpoints.change(
        found.pk, tenant=tenant, actor=request.access.actor, url=given.get("url", "").strip(),
        event_types=given.get("event_types", "").replace(",", " ").split(), description=given.get("description", ""),
    )  # fmt: skip
    return "It was changed. What waits for it goes there as well.", ""


def _rotate(request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint) -> tuple[str, str]:
    hours = request.POST.get("hours", "")
    if not hours.isdecimal() or len(hours) > 4:
        raise InputRefused("give the hours for which the old secret signs as well, as a whole number.")
    issued = endpoints.rotate(
        found.pk, tenant=tenant, actor=request.access.actor, overlap=timedelta(hours=int(hours))
    )  # fmt: skip
    return "", issued.secret


def _disable(request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint) -> tuple[str, str]:
    reason = _reason(request)
    endpoints.disable(found.pk, tenant=tenant, actor=request.access.actor, reason=reason)
    return "It gets nothing any more. What waits for it goes on waiting.", ""


def _enable(request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint) -> tuple[str, str]:
    endpoints.enable(found.pk, tenant=tenant, actor=request.access.actor)
    return "It gets events again, beginning with what waits for it.", ""


def _remove(request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint) -> tuple[str, str]:
    endpoints.remove(found.pk, tenant=tenant, actor=request.access.actor, reason=_reason(request))
    return "It was removed. What waited for it is skipped.", ""


def _reason(request: ConsoleRequest) -> str:
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise InputRefused("say why: the reason stands in the audit.")
    return reason


_ACTS: dict[str, Callable[[ConsoleRequest, Tenant, WebhookEndpoint], tuple[str, str]]] = {
    "change": _change,
    "rotate": _rotate,
    "disable": _disable,
    "enable": _enable,
    "remove": _remove,
}


def _find(tenant: Tenant, endpoint_id: UUID) -> WebhookEndpoint:
    found: WebhookEndpoint | None = endpoints.living(tenant).filter(pk=endpoint_id).first()
    if found is None:
        raise Http404(str(EndpointNotFound(f"{tenant} has no webhook endpoint {endpoint_id}.")))
    return found


def _known_events() -> list[str]:
    """The events that the code of this process declares, for people to choose from."""
    return sorted({tool.event_type for tool in registry.tools() if tool.event_type})


def _answer(request: ConsoleRequest, tenant: Tenant, *, status: int = 200, **more: Any) -> HttpResponse:
    found = list(endpoints.living(tenant))
    names = {endpoints.destination_of(one): one.pk for one in found}
    records = OutboxDestination.objects.filter(tenant=tenant, name__in=names, failures__gt=0)
    failing = {names[record.name]: record for record in records}
    context = {
        **context_for(request, "webhooks"), "tenant": tenant,
        "endpoints": [(one, failing.get(one.pk)) for one in found],
        "tenants": [one for one in request.access.tenants if request.access.may(Permission.ADMINISTER, one.pk)],
        "events": _known_events(), "http_allowed": endpoints.http_is_allowed(), **more,
    }  # fmt: skip
    return render(request, "console/webhooks/page.html", context, status=status)


def _one(
    request: ConsoleRequest, tenant: Tenant, found: WebhookEndpoint, *, status: int = 200, **more: Any
) -> HttpResponse:
    given = request.GET.get("before", "")
    before = int(given) if given.isdecimal() and len(given) < 19 else None
    name = endpoints.destination_of(found)
    context = {
        **context_for(request, "webhooks"), "tenant": tenant, "endpoint": found, "now": clock.now(),
        "record": OutboxDestination.objects.filter(tenant=tenant, name=name).first(), "events": _known_events(),
        "deliveries": outbox.deliveries(found.pk, before=before),
        "before": before, **more,
    }  # fmt: skip
    return render(request, "console/webhooks/endpoint.html", context, status=status)

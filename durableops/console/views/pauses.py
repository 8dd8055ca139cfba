"""Switches that pause many runs at once: what stands, whom it touches, setting and lifting one."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops.access import Permission
from durableops.console.access import Access, NotAllowed
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.listing import COUNT_CAP
from durableops.engine import commands
from runs.models import PauseSwitch, Tenant
from runs.states import OPEN

_OPEN_RUNS = """
SELECT t.id, (SELECT count(*) FROM (
    SELECT 1 FROM unnest(%(states)s::text[]) s(state) CROSS JOIN LATERAL (
        SELECT 1 FROM runs_run r WHERE r.tenant_id = t.id AND r.state = s.state LIMIT %(cap)s) y LIMIT %(cap)s) x)
FROM unnest(%(tenants)s::int[]) t(id)"""


@page("GET", "POST", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The switches that stand, and the form for one more; POST sets it."""
    if request.method == "GET":
        return _answer(request)
    scope, _, slug = request.POST.get("scope", "").partition(":")
    workflow, reason = request.POST.get("workflow", "").strip()[:100], request.POST.get("reason", "").strip()
    tenant = next((t for t in request.access.tenants if t.slug == slug), None)
    if scope not in ("all", "tenant") or (scope == "tenant" and tenant is None):
        raise Http404("There is no such scope.")
    _require(request.access, tenant)
    if not reason:
        return _answer(request, wrong="Say why: everybody who finds a run paused reads it.", status=422)
    chosen = "workflow" if workflow else scope
    commands.set_switch(chosen, actor=request.access.actor, reason=reason, tenant=tenant, workflow=workflow)
    said(request, f"{_named(chosen, tenant, workflow)} is paused. What runs is handed back at its next commit.")
    return redirect("console:pauses")


@page("POST", permission=Permission.SIGNED_IN)
def lift(request: ConsoleRequest, switch_id: int) -> HttpResponse:
    """Lift one switch; what it held is claimable again at once."""
    switch = PauseSwitch.objects.select_related("tenant").filter(pk=switch_id).first()
    if switch is None or (switch.tenant is not None and switch.tenant not in request.access.tenants):
        return _answer(request, wrong="It was lifted already. Nothing was changed.", status=409)
    _require(request.access, switch.tenant)
    reason = request.POST.get("reason", "").strip()
    if commands.lift_switch(switch, actor=request.access.actor, reason=reason):
        said(request, f"{_named(switch.scope, switch.tenant, switch.workflow)} goes on.")
        return redirect("console:pauses")
    return _answer(request, wrong="It was lifted already. Nothing was changed.", status=409)


def _require(access: Access, tenant: Tenant | None) -> None:
    """An admin pauses their tenant; what reaches beyond one tenant is a superuser's."""
    if tenant is None and not access.everything:
        raise NotAllowed(Permission.ADMINISTER, "every tenant")
    if tenant is not None and not access.may(Permission.ADMINISTER, tenant.pk):
        raise NotAllowed(Permission.ADMINISTER, tenant.slug)


def _named(scope: str, tenant: Tenant | None, workflow: str) -> str:
    where = f" of {tenant.slug}" if tenant is not None and workflow else ""
    return {"all": "Everything", "tenant": f"Tenant {tenant.slug if tenant else ''}"}.get(
        scope, f"Workflow {workflow}{where}"
    )


def _answer(request: ConsoleRequest, *, wrong: str = "", status: int = 200) -> HttpResponse:
    access = request.access
    mine = [tenant for tenant in access.tenants if access.may(Permission.ADMINISTER, tenant.pk)]
    standing = [
        (switch, access.everything or (switch.tenant is not None and switch.tenant in mine))
        for switch in PauseSwitch.objects.select_related("tenant").order_by("at")[:100]
        if switch.tenant_id is None or switch.tenant in access.tenants
    ]
    context = {
        **context_for(request, "pauses"), "standing": standing, "scopes": _scopes(mine), "wrong": wrong,
        "everything": access.everything, "reason": request.POST.get("reason", ""),
    }  # fmt: skip
    return render(request, "console/pauses/page.html", context, status=status)


def _scopes(tenants: list[Tenant]) -> list[dict[str, Any]]:
    """The tenants one may pause, with how many open runs that touches."""
    with connection.cursor() as cursor:
        cursor.execute(_OPEN_RUNS, {"states": sorted(OPEN), "cap": COUNT_CAP + 1, "tenants": [t.pk for t in tenants]})
        touched = dict(cursor.fetchall())
    shown = {pk: f"{COUNT_CAP:,}+" if n > COUNT_CAP else f"{n:,}" for pk, n in touched.items()}
    return [{"slug": tenant.slug, "open": shown.get(tenant.pk, "0")} for tenant in tenants]

"""Members and API tokens of one tenant, for its admins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render

from durableops import clock, tokens
from durableops.access import SCOPES, Permission
from durableops.console import members
from durableops.console.http import ConsoleRequest, chosen, context_for, page, said, status_of
from durableops.errors import DurableOpsError, InputRefused
from runs.models import ApiToken, Membership, Tenant
from runs.models.access import Role

SHOWN = 500


@page("GET", "POST", permission=Permission.ADMINISTER)
def show(request: ConsoleRequest, slug: str) -> HttpResponse:
    """The page; POST does one thing and shows a secret it made once, here and never again."""
    tenant = request.access.tenant_to_administer(slug)
    if request.method == "GET":
        return _answer(request, tenant)
    act = chosen(request, _ACTS)
    try:
        text, secret = act(request, tenant)
    except DurableOpsError as refused:
        return _answer(request, tenant, wrong=str(refused), status=status_of(refused))
    if secret:
        return _answer(request, tenant, secret=secret, told=text)
    said(request, text)
    return redirect("console:people", slug=tenant.slug)


def _put(request: ConsoleRequest, tenant: Tenant) -> tuple[str, str]:
    given = request.POST
    name = given.get("username", "").strip()
    password = members.put(name, tenant=tenant, role=given.get("role", ""), sees_payloads="sees_payloads" in given,
                           reads_prompts="reads_prompts" in given, actor=request.access.actor)  # fmt: skip
    return f"{name} is {given.get('role', '')} of {tenant.slug}.", password


def _remove(request: ConsoleRequest, tenant: Tenant) -> tuple[str, str]:
    name = request.POST.get("username", "")
    members.remove(name, tenant=tenant, actor=request.access.actor)
    return f"{name} is no member of {tenant.slug} any more.", ""


def _issue(request: ConsoleRequest, tenant: Tenant) -> tuple[str, str]:
    days = request.POST.get("days", "")
    if not days.isdecimal() or len(days) > 4:
        raise InputRefused("give the days the token lives as a whole number.")
    issued = tokens.issue(request.POST.get("name", "").strip(), tenant=tenant, scopes=request.POST.getlist("scope"),
                          lifetime=timedelta(days=int(days)), actor=request.access.actor)  # fmt: skip
    return f"Token {issued.token.name} was made.", issued.secret


def _revoke(request: ConsoleRequest, tenant: Tenant) -> tuple[str, str]:
    token = tokens.revoke(request.POST.get("prefix", ""), tenant=tenant, actor=request.access.actor, reason="")
    return f"Token {token.name} was revoked. Whoever sends it is refused from now on.", ""


_ACTS: dict[str, Callable[[ConsoleRequest, Tenant], tuple[str, str]]] = {
    "put": _put,
    "remove": _remove,
    "issue": _issue,
    "revoke": _revoke,
}


def _answer(request: ConsoleRequest, tenant: Tenant, *, status: int = 200, **more: Any) -> HttpResponse:
    access = request.access
    context = {
        **context_for(request, "people"), "tenant": tenant, "roles": Role.values, "scopes": SCOPES,
        "tenants": [one for one in access.tenants if access.may(Permission.ADMINISTER, one.pk)],
        "members": Membership.objects.filter(tenant=tenant).select_related("user").order_by("user__username")[:SHOWN],
        "api_tokens": ApiToken.objects.filter(tenant=tenant).order_by("-id")[:SHOWN], "now": clock.now(), **more,
    }  # fmt: skip
    return render(request, "console/people/page.html", context, status=status)

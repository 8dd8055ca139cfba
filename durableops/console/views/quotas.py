"""Quotas: what each tenant and each shared resource may use, what is under it, and its policy edited with a preview."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from durableops import clock
from durableops.access import Permission
from durableops.console.access import NotAllowed
from durableops.console.http import ConsoleRequest, context_for, page, said, status_of
from durableops.engine import budgeting, quota_view, quotas
from durableops.engine.quotas import FIELDS, OF_RESOURCES, Owner
from durableops.errors import DurableOpsError, InputRefused
from runs.models import QuotaPolicy, Tenant
from runs.models.budget import BUDGET_POLICIES, PERIODS, UNITS

LABELS = {
    "running_cap": ("Runs at once", "Empty is no cap; 0 lets none start. What runs is never ended."),
    "weight": ("Turns", "How many turns it has where another tenant has one."),
    "priority_min": ("Lowest priority", "What its runs ask for is brought into this range when they start."),
    "priority_max": ("Highest priority", ""),
    "starts_per_minute": ("Starts a minute", "Empty is no limit; 0 lets none start."),
}


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """What each tenant and resource may use, and what it uses."""
    access = request.access
    context = {
        **context_for(request, "quotas"), "now": clock.now(),
        "tenants": [(one, access.may(Permission.ADMINISTER, one.owner.tenant.pk))
                    for one in quota_view.of_tenants(access.tenants) if one.owner.tenant is not None],
        "resources": quota_view.of_resources(), "most": quota_view.MOST_TENANTS, "many": len(access.tenants),
    }  # fmt: skip
    return render(request, "console/quotas/page.html", context)


@page("GET", "POST", permission=Permission.ADMINISTER)
def of_tenant(request: ConsoleRequest, slug: str) -> HttpResponse:
    """The quota of one tenant; POST previews a change, or makes it."""
    return _policy(request, Owner(tenant=request.access.tenant_to_administer(slug)))


@page("GET", "POST", permission=Permission.SIGNED_IN)
def of_resource(request: ConsoleRequest, name: str) -> HttpResponse:
    """The quota of a resource that all tenants share, for a superuser."""
    if not request.access.everything:
        raise NotAllowed(Permission.ADMINISTER, "every tenant")
    return _policy(request, Owner(resource=name))


def _policy(request: ConsoleRequest, owner: Owner) -> HttpResponse:
    if request.method == "GET":
        return _answer(request, owner)
    given = request.POST
    if given.get("act") not in ("preview", "save", "add"):
        raise Http404("There is no such verb.")
    try:
        if given["act"] == "add" and owner.tenant is not None:
            return _add(request, owner.tenant)
        changes = _changed(owner, quotas.checked(owner, _given(given, owner)))
        if given["act"] == "preview":
            told = quota_view.preview(quota_view.of(owner), changes)
            return _answer(request, owner, given=given, preview=told)
        reason = given.get("reason", "").strip()
        if not reason:
            raise InputRefused("say why: the reason stands in the history.")
        quotas.set_quota(
            owner, changes, actor=request.access.actor, reason=reason, made_from=_number("version", given["version"])
        )
    except (DurableOpsError, KeyError) as refused:
        status = status_of(refused) if isinstance(refused, DurableOpsError) else 400
        return _answer(request, owner, given=given, wrong=str(refused), status=status)
    said(request, f"The quota of {owner} was changed. It holds for the next claim; rates follow within a second.")
    return redirect("console:quotas")


def _add(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """More budget for the present day or month. Raises InputRefused, also for what it may not be."""
    given, reason = request.POST, request.POST.get("reason", "").strip()
    if not reason:
        raise InputRefused("say why: the reason stands in the history.")
    unit, period = given.get("unit", ""), given.get("period", "")
    limits = budgeting.add_tenant_budget(
        tenant, actor=request.access.actor, reason=reason, period=period,
        amounts={unit: _amount(unit, given.get("amount", ""))},
    )  # fmt: skip
    said(request, f"{tenant} may spend {limits[unit]} {unit.replace('_', ' ')} in this {period} now.")
    return redirect("console:quota_of_tenant", slug=tenant.slug)


def _changed(owner: Owner, wanted: dict[str, Any]) -> dict[str, Any]:
    """What differs from the policy as it is."""
    policy = quotas.find(owner) or QuotaPolicy(tenant=owner.tenant, resource=owner.resource)
    return {name: value for name, value in wanted.items() if getattr(policy, name) != value}


def _given(given: QueryDict, owner: Owner) -> dict[str, Any]:
    names = [name for name in FIELDS if owner.tenant is not None or name in OF_RESOURCES]
    changes: dict[str, Any] = {name: _number(name, given.get(name, "")) for name in names}
    if owner.tenant is not None:
        changes[quotas.CALL_RATES] = _rates(given.get(quotas.CALL_RATES, ""))
        changes[quotas.BUDGETS] = _budgets(given.get(quotas.BUDGETS, ""))
        changes[quotas.BUDGET_POLICY] = given.get(quotas.BUDGET_POLICY, BUDGET_POLICIES[0])
        changes[quotas.TIME_ZONE] = given.get(quotas.TIME_ZONE, "").strip() or "UTC"
    return changes


def _number(name: str, text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    try:
        return int(text) if len(text) < 10 else 10**9
    except ValueError:
        raise InputRefused(f"{name} is {text[:40]!r}; give a whole number.", path=f"/{name}") from None


def _rates(text: str) -> dict[str, Any]:
    """Lines such as `tool:send 600`."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if line.strip():
            name, _, limit = line.strip().rpartition(" ")
            found[name.strip()] = _number(f"the rate of {name.strip()[:100] or line.strip()[:100]!r}", limit)
    return found


def _budgets(text: str) -> dict[str, Any]:
    """Lines such as `day tokens 200000`."""
    found: dict[str, dict[str, Decimal]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) not in (0, 3):
            raise InputRefused(
                f"the budget {line.strip()[:60]!r} wants a period, a unit and an amount.", path="/budgets"
            )
        if words:
            found.setdefault(words[0], {})[words[1]] = _amount(words[1], words[2])
    return found


def _amount(unit: str, text: str) -> Decimal:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        raise InputRefused(f"the amount of {unit[:40]!r} is {text[:40]!r}; give a number.", path="/budgets") from None


def _answer(
    request: ConsoleRequest, owner: Owner, *, given: QueryDict | None = None, status: int = 200, **more: Any
) -> HttpResponse:
    seen = quota_view.of(owner)
    policy = seen.policy
    names = [name for name in LABELS if owner.tenant is not None or name in OF_RESOURCES]
    usual = {"weight": 1, "priority_min": -100, "priority_max": 100}
    values = {name: getattr(policy, name) if policy else usual.get(name) for name in names}
    rates = "\n".join(f"{name} {limit}" for name, limit in sorted((policy.call_rates if policy else {}).items()))
    fields = [
        {
            "name": name, "label": LABELS[name][0], "hint": LABELS[name][1],
            "value": given.get(name, "") if given is not None else "" if values[name] is None else values[name],
        }
        for name in names
    ]  # fmt: skip
    context = {
        **context_for(request, "quotas"), "seen": seen, "owner": owner, "fields": fields, "now": clock.now(),
        "budgets": given.get(quotas.BUDGETS, "") if given is not None else _as_lines(policy.budgets if policy else {}),
        "policies": BUDGET_POLICIES, "units": UNITS, "periods": PERIODS,
        "budget_policy": given.get(quotas.BUDGET_POLICY) if given is not None else policy and policy.budget_policy,
        "time_zone": given.get(quotas.TIME_ZONE, "") if given is not None else policy.time_zone if policy else "UTC",
        "rates": given.get(quotas.CALL_RATES, "") if given is not None else rates,
        "version": policy.version if policy else 0, "reason": given.get("reason", "") if given is not None else "",
        "history": quota_view.history(owner), **more,
    }  # fmt: skip
    return render(request, "console/quotas/policy.html", context, status=status)


def _as_lines(budgets: dict[str, dict[str, str]]) -> str:
    return "\n".join(f"{period} {unit} {most}" for period, units in budgets.items() for unit, most in units.items())

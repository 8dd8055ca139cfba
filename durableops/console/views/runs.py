"""The list of runs and its live region."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops.access import Permission
from durableops.console import listing
from durableops.console.filters import RunFilter
from durableops.console.http import ConsoleRequest, context_for, page


def list_context(request: ConsoleRequest, asked: RunFilter) -> dict[str, Any]:
    """What the list needs; page and refresh share it."""
    access = request.access
    counts = listing.view_counts(asked, access.tenants)
    return {
        **context_for(request, "runs"),
        "filter": asked,
        "page": listing.page(asked, access.tenants),
        "rail": [(view, query, counts[view.name]) for view, query in asked.links()],
        "matching": counts[asked.view.name],
        "may_start": any(access.may_verb("start", tenant.pk) for tenant in access.tenants),
        "many_tenants": len(access.tenants) > 1,
    }


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page. Conditions that were typed become part of the address, which alone says what is shown."""
    asked = RunFilter.read(request.GET)
    if added := request.GET.get("add", "").strip():
        if run_id := _whole_id(added):
            return redirect("console:run", run_id=run_id)
        return redirect(f"{reverse('console:runs')}?{asked.with_text(added).query}")
    return render(request, "console/runs/list.html", list_context(request, asked))


@page("GET", permission=Permission.SIGNED_IN)
def table(request: ConsoleRequest) -> HttpResponse:
    """The live region alone."""
    return render(request, "console/runs/_region.html", list_context(request, RunFilter.read(request.GET)))


def _whole_id(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) >= 32 else None
    except ValueError:
        return None

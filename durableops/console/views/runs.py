"""The list of runs and its live region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops.access import Permission
from durableops.console import columns, listing
from durableops.console.filters import RunFilter
from durableops.console.http import YEAR_SECONDS, ConsoleRequest, context_for, page
from durableops.engine.bulk.verbs import verbs


def list_context(request: ConsoleRequest, asked: RunFilter) -> dict[str, Any]:
    """What the list needs; page and refresh share it."""
    access = request.access
    counts = listing.view_counts(asked, access.tenants)
    many_tenants = len(access.tenants) > 1
    return {
        **context_for(request, "runs"),
        "filter": asked,
        "page": listing.page(asked, access.tenants),
        "rail": [(view, query, counts[view.name]) for view, query in asked.links()],
        "matching": counts[asked.view.name],
        "may_start": any(access.may_verb("start", tenant.pk) for tenant in access.tenants),
        "columns": columns.shown(asked.columns, many_tenants=many_tenants),
        "heads": columns.COLUMNS,
        "numbers": columns.NUMBERS,
        "bulk_verbs": [
            one
            for one in verbs()
            if one.offered and any(access.may_verb(one.name, tenant.pk) for tenant in access.tenants)
        ],
    }


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page. Conditions that were typed become part of the address, which alone says what is shown."""
    asked = RunFilter.read(request.GET)
    if "col" in request.GET or "usual" in request.GET:
        return _choose_columns(request, asked)
    if "cols" not in request.GET and (kept := columns.read(request.COOKIES.get("columns", "").split("."))):
        asked = replace(asked, columns=kept)
        if "add" not in request.GET:
            return redirect(f"{reverse('console:runs')}?{asked.query}")
    if added := request.GET.get("add", "").strip():
        if run_id := _whole_id(added):
            return redirect("console:run", run_id=run_id)
        return redirect(f"{reverse('console:runs')}?{asked.with_text(added).query}")
    return render(request, "console/runs/list.html", list_context(request, asked))


@page("GET", permission=Permission.SIGNED_IN)
def table(request: ConsoleRequest) -> HttpResponse:
    """The live region alone."""
    return render(request, "console/runs/_region.html", list_context(request, RunFilter.read(request.GET)))


def _choose_columns(request: ConsoleRequest, asked: RunFilter) -> HttpResponse:
    """The choice goes into the address, which can be shared, and into a cookie, which makes it the person's own."""
    chosen = () if "usual" in request.GET else columns.read(request.GET.getlist("col"))
    response = redirect(f"{reverse('console:runs')}?{replace(asked, columns=chosen).query}")
    response.set_cookie("columns", ".".join(chosen), max_age=YEAR_SECONDS, samesite="Lax")
    return response


def _whole_id(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) >= 32 else None
    except ValueError:
        return None

"""The page of workflows: each version with the runs that need it, the workers that have it, and the way ahead."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from durableops.access import Permission
from durableops.console import versions
from durableops.console.http import ConsoleRequest, context_for, page


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page; whoever belongs to no tenant sees none of it."""
    found = versions.versions(request.access.tenant_ids) if request.access.tenants else []
    context = {**context_for(request, "workflows"), "versions": found, "looked_at": versions.LOOKED_AT}
    return render(request, "console/workflows/page.html", context)

"""Effects over all runs: idempotency records by key, tool, system, state and request, conflicts on top."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops.access import Permission
from durableops.console import effects
from durableops.console.effect_filter import FIELDS, EffectFilter
from durableops.console.http import ConsoleRequest, context_for, page
from durableops.console.inbox.doubts import Doubts
from durableops.console.inbox.frame import shown_count

_STATES = ("in_doubt", "intended", "queued", "succeeded", "refused", "given_up", "withdrawn")


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    asked, access = EffectFilter.read(request.GET), request.access
    if "filter" in request.GET:  # the form names every field; the address only those that say something
        return redirect(f"{reverse('console:effects')}?{asked.first_page().query}")
    found, tenants = effects.page(asked, access.tenants), effects.tenants_of(asked, access.tenants)
    doubts = shown_count(Doubts().count(tenants))
    context = {
        **context_for(request, "effects"), "filter": asked, "page": found, "fields": FIELDS,
        "rail": [("", "All", asked.with_one("state", "").query, "")] + [
            (state, state.replace("_", " ").capitalize(), asked.with_one("state", state).query,
             doubts if state == "in_doubt" else "") for state in _STATES],
        "conflicts": effects.conflicts(asked, access.tenants) if asked.before is None else [],
        "newest_conflicts": effects.NEWEST_CONFLICTS, "window": effects.WINDOW, "states": _STATES,
        "tools": [] if request.htmx else effects.tools(access.tenant_ids),
        "several_tenants": len(access.tenants) > 1,
        "first": asked.first_page().query if asked.before is not None else None,
        "following": asked.at(found.following).query if found.following is not None else None,
    }  # fmt: skip
    return render(request, f"console/effects/{'_region' if request.htmx else 'list'}.html", context)

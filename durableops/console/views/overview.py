"""The first page: what needs a person, then how things are going."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from durableops import clock
from durableops.access import Permission
from durableops.console import figures, listing
from durableops.console.filters import VIEWS, RunFilter
from durableops.console.http import ConsoleRequest, context_for, page
from durableops.console.inbox import keyset
from durableops.console.inbox.compensation import Compensations
from durableops.console.inbox.doubts import Doubts
from durableops.console.inbox.frame import shown_count
from durableops.console.inbox.undelivered import Undelivered
from durableops.engine import firings
from durableops.upkeep.retention import sizes
from runs.models import PauseSwitch

_TILES = (
    "people",
    "review",
    "limbo",
    "failed",
    "timed-out",
    "paused",
    "resumed",
    "running",
    "queued",
    "systems",
)
_DESK = (Doubts(), Compensations(), Undelivered())
_NEEDS = ("people", "review", "limbo", "failed")


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    template = "console/overview/_region.html" if request.htmx else "console/overview/page.html"
    return render(request, template, overview_context(request))


def overview_context(request: ConsoleRequest) -> dict[str, Any]:
    """Every number with its scope and the list behind it."""
    access, now = request.access, clock.now()
    counts = listing.view_counts(RunFilter(), access.tenants, _TILES)
    tiles = {name: (VIEWS[name], RunFilter().to_view(VIEWS[name]).query, counts[name]) for name in _TILES}
    living, lost, held = figures.workers(access.tenant_ids)
    measured = sizes.growth() if access.administered else []
    hours = figures.by_hour(access.tenant_ids)
    waits = {name: shown_count(n) for name, n in keyset.counts(_DESK, access.tenant_ids).items()}
    return {
        **context_for(request, "overview"),
        "needs": [tiles[name] for name in _NEEDS],
        "others": [tiles[name] for name in _TILES if name not in _NEEDS],
        # Of effects, not of runs: a run may have several, and those that ended leave theirs behind.
        "waits": waits,
        "settles": any(access.may(Permission.SETTLE, tenant) for tenant in access.tenant_ids),
        "calm": all(counts[name] == "0" for name in _NEEDS) and all(count == "0" for count in waits.values()),
        "hours": hours,
        "started": sum(hour.started for hour in hours),
        "failed": sum(hour.failed for hour in hours),
        # Each tenant's newest runs are counted up to a cap; at it, the figure is a lower bound and says so.
        "capped": figures.MOST if sum(hour.started for hour in hours) >= figures.MOST else 0,
        "recovery": figures.recovery(access.tenant_ids),
        "waiting": figures.waiting(access.tenant_ids),
        "due": figures.approvals_due(access.tenant_ids, now=now),
        "workers": living,
        "lost": lost,
        "held": held,
        "fired": firings.by_cause(access.tenant_ids, hours=figures.HOURS),
        "switches": [s for s in PauseSwitch.objects.select_related("tenant")[:20]
                     if s.tenant_id is None or access.everything or s.tenant_id in access.memberships],
        "now": now,
        "sizes": measured,
        "size": sum(one.bytes for one in measured),
        "growing": [one for one in measured if one.alarming],
    }  # fmt: skip

"""The page of workers: leases, signs of life, runs in hand, and those that ended lately."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render

from durableops import clock
from durableops.access import Permission
from durableops.console.access import Access
from durableops.console.http import ConsoleRequest, context_for, page
from runs.models import Run, Worker
from runs.states import State

SHOWN = 100


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    template = "console/workers/_region.html" if request.htmx else "console/workers/page.html"
    return render(request, template, workers_context(request))


def workers_context(request: ConsoleRequest) -> dict[str, Any]:
    """Living workers with what they hold, and the last that ended. Runs of other tenants are only counted."""
    now = clock.db_now()
    living = list(Worker.objects.filter(ended_at=None).order_by("number")[:SHOWN])
    ended = list(Worker.objects.filter(ended_at__isnull=False).order_by("-number")[:20])
    held = _in_hand(request.access, living)
    return {
        **context_for(request, "workers"),
        "living": [_line(worker, held.get(worker.pk, []), now) for worker in living],
        "ended": ended,
        "now": now,
    }


def _in_hand(access: Access, workers: list[Worker]) -> dict[Any, list[Run | None]]:
    found: dict[Any, list[Run | None]] = {}
    mine = set(access.tenant_ids)
    runs = Run.objects.filter(worker__in=workers, state=State.RUNNING).select_related("tenant", "plan")[:500]
    for run in runs:
        found.setdefault(run.worker_id, []).append(run if run.tenant_id in mine else None)
    return found


def _line(worker: Worker, held: list[Run | None], now: datetime) -> dict[str, Any]:
    silent = max(0.0, (now - worker.renewed_at).total_seconds())
    state = "lost" if silent > worker.lease_seconds else "warning" if worker.draining else "alive"
    return {
        "worker": worker,
        "held": [run for run in held if run is not None],
        "others": sum(run is None for run in held),
        "silent": silent,
        "state": state,
        "word": {"lost": "silent", "warning": "draining", "alive": "alive"}[state],
        "icon": {"lost": "triangle-alert", "warning": "hourglass", "alive": "circle-check"}[state],
    }

"""The page of workers: leases, signs of life, runs in hand, those that ended lately; in a demo, killing one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops import clock
from durableops.access import Permission
from durableops.console import demo
from durableops.console.access import Access, NotAllowed
from durableops.console.http import ConsoleRequest, context_for, notice, page, refusal, said
from durableops.errors import InputRefused
from runs.models import Run, Tenant, Worker
from runs.states import State

SHOWN = 100


@page("GET", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The page, or with `HX-Request` its live region."""
    template = "console/workers/_region.html" if request.htmx else "console/workers/page.html"
    return render(request, template, workers_context(request))


@page("POST", permission=Permission.SIGNED_IN)
def kill(request: ConsoleRequest, worker_id: UUID) -> HttpResponse:
    """Kill a worker of the demo; outside of one there is no such address."""
    worker = Worker.objects.filter(pk=worker_id).first()
    if not demo.is_on() or worker is None or not request.access.tenants:
        raise Http404("There is nothing of this kind to kill.")
    held = demo.in_hand(worker)
    tenants = [run.tenant for run in held] or [_where_they_operate(request.access)]
    for tenant in tenants:
        if tenant not in request.access.tenants:
            raise Http404("There is nothing of this kind to kill.")
        if not request.access.may(Permission.OPERATE, tenant.pk):
            raise NotAllowed(Permission.OPERATE, tenant.slug)
    try:
        demo.kill(worker, held=held, tenant=tenants[0], actor=request.access.actor)
    except InputRefused as refused:
        return refusal(request, str(refused), status=409)
    if request.htmx:
        return notice(request, _killed(worker, held), kind="info")
    said(request, _killed(worker, held))
    return redirect("console:workers")


def _where_they_operate(access: Access) -> Tenant:
    return next((one for one in access.tenants if access.may(Permission.OPERATE, one.pk)), access.tenants[0])


def _killed(worker: Worker, held: list[Run]) -> str:
    after = " Its run goes on elsewhere within about a second: watch it." if held else " It held no run."
    return f"Worker {worker.number} was killed (SIGKILL).{after}"


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
        "demo": demo.is_on(),
        "operates": any(request.access.may(Permission.OPERATE, pk) for pk in request.access.tenant_ids),
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
        "mortal": state != "lost" and demo.may_be_killed(worker),
        "held": [run for run in held if run is not None],
        "others": sum(run is None for run in held),
        "silent": silent,
        "state": state,
        "word": {"lost": "silent", "warning": "draining", "alive": "alive"}[state],
        "icon": {"lost": "triangle-alert", "warning": "hourglass", "alive": "circle-check"}[state],
    }

"""The page of one run, its live region, and the payload of one checkpoint."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render

from durableops.access import Permission
from durableops.console import actions, diffs, payloads, run_page
from durableops.console.http import ConsoleRequest, context_for, page
from runs.models import Checkpoint, Doubt, IdempotencyRecord, Run

DOUBTS_SHOWN = 20


def live_context(request: ConsoleRequest, run: Run) -> dict[str, Any]:
    """What the live region needs; the page and its refresh are the same template with the same facts."""
    names = [name for name, _ in run_page.TABS]
    tab = request.GET.get("tab", "timeline")
    tab = tab if tab in names else "timeline"
    window = run_page.Window(before=_number(request, "before"), upto=_number(request, "upto"))
    return {
        **context_for(request, "runs"),
        **run_page.head(run, request.access),
        **run_page.tab(tab, run, request.access, window),
        "tab": tab,
        "tabs": run_page.TABS,
        "before": window.before,
    }


def _number(request: ConsoleRequest, name: str) -> int | None:
    given = request.GET.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 19 else None


@page("GET", permission=Permission.VIEW)
def show(request: ConsoleRequest, run_id: UUID) -> HttpResponse:
    """The page."""
    run = request.access.run(run_id)
    return render(request, "console/run/page.html", live_context(request, run))


@page("GET", permission=Permission.VIEW)
def live(request: ConsoleRequest, run_id: UUID) -> HttpResponse:
    """The live region alone."""
    run = request.access.run(run_id)
    return render(request, "console/run/_live.html", live_context(request, run))


@page("GET", permission=Permission.VIEW)
def checkpoint(request: ConsoleRequest, run_id: UUID, seq: int) -> HttpResponse:
    """One checkpoint's state and output, and its difference from an earlier one."""
    run = request.access.run(run_id)
    sight = request.access.sees_payloads(run.tenant_id)
    found = Checkpoint.objects.filter(run=run, seq=seq).select_related("plan").first()
    if found is None:
        raise Http404(f"This run has no checkpoint {seq}.")
    other = request.GET.get("with", "")
    against = int(other) if other.isdecimal() and len(other) < 10 else max(0, seq - 1)
    states = diffs.states(run, (found.state_seq, against))
    context = {
        **context_for(request, "runs"), "run": run, "checkpoint": found, "against": against, "sight": sight,
        **actions.going_back(run, request.access),
        "state": payloads.show("state", states.get(found.state_seq), sight=sight),
        "output": payloads.show("output", found.output, sight=sight),
        "diff": diffs.lines(states.get(against), states.get(found.state_seq)) if sight and against != seq else [],
    }  # fmt: skip
    return render(request, "console/run/checkpoint.html", context)


@page("GET", permission=Permission.VIEW)
def effect(request: ConsoleRequest, run_id: UUID, effect_id: int) -> HttpResponse:
    """One effect: request, outcome, how often it was sent and reused."""
    run = request.access.run(run_id)
    sight = request.access.sees_payloads(run.tenant_id)
    found = IdempotencyRecord.objects.filter(run=run, pk=effect_id).first()
    if found is None:
        raise Http404(f"This run has no effect {effect_id}.")
    context = {
        **context_for(request, "runs"), "run": run, "effect": found,
        "asked": payloads.show("request", found.request_summary or None, sight=sight),
        "result": payloads.show("result", found.result, sight=sight),
        "doubts": Doubt.objects.filter(effect=found).order_by("-id")[:DOUBTS_SHOWN],
    }  # fmt: skip
    return render(request, "console/run/effect.html", context)

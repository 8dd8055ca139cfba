"""What people do to runs: consequences on GET, the engine's verb on POST, the run as it is then as the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from durableops.access import Permission
from durableops.console import actions, guarding
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.views.run import live_context
from durableops.engine import budgeting, commands, compensating, guard, reviewing
from durableops.engine.commands import Done
from durableops.engine.guard import Plan
from durableops.engine.retention import holds
from durableops.errors import (
    DurableOpsError,
    InputRefused,
    MigrationRefused,
    PlanChanged,
    TransitionRefused,
    WorkflowNotFound,
)
from runs.models import Run, Wait
from runs.states import OPEN

_COMMANDS: dict[str, Callable[..., Done]] = {
    "pause": commands.pause,
    "resume": commands.resume,
    "cancel": commands.cancel,
    "retry": commands.retry,
    "recheck": commands.recheck,
    "migrate": reviewing.migrate,
    "revert": reviewing.revert,
    "pin": reviewing.pin,
    "unpin": reviewing.unpin,
    "reject": reviewing.reject,
    "ask_second": reviewing.ask_second,
    "extend": commands.extend_deadline,
    "add_budget": budgeting.add_budget,
    "compensate": compensating.compensate,
    "place_hold": holds.hold_run,
    "lift_hold": holds.let_run_go,
}


@page("GET", "POST", permission=Permission.VIEW)
def run_verb(request: ConsoleRequest, run_id: UUID, verb: str) -> HttpResponse:
    """Pause, resume, retry, recheck, extend, cancel, compensate or hold one run."""
    run = request.access.run(run_id)
    known = actions.RUN_VERBS.get(verb)
    if known is None:
        raise Http404("There is no such verb.")
    request.access.require_verb(verb, run.tenant)
    if request.method == "GET":
        return _ask(request, run, known)
    reason = request.POST.get("reason", "").strip()
    if known.needs_reason and not reason:
        return _ask(request, run, known, wrong="Say why: the reason stands in the audit.")
    given: dict[str, Any] = {}
    if verb in ("retry", "compensate", "migrate", "pin"):
        # A form without one showed no plan: what would send something again is shown first, and asked for once more.
        given["plan_hash"] = request.POST.get("plan_hash") or guard.UNSEEN
    if verb in ("cancel", "reject"):
        given["done"] = request.POST.get("done") or commands.WHAT_WAS_DONE[0]
    if verb in ("extend", "retry"):
        given["deadline_at"] = deadline = instant(request, "deadline_at")
        if verb == "extend" and deadline is None:
            return _ask(request, run, known, wrong="Give the new deadline as a date and time.")
    if verb == "add_budget":
        try:
            given["amounts"] = {request.POST.get("unit", ""): Decimal(request.POST.get("amount", "").strip())}
        except InvalidOperation:
            return _ask(request, run, known, wrong="Give the amount as a number.")
    return answered(request, run, lambda: _COMMANDS[verb](
        run.pk, tenant=run.tenant, actor=request.access.actor, reason=reason, **given), known.done,
        again=lambda wrong: _ask(request, run, known, wrong=wrong, status=409))  # fmt: skip


@page("GET", "POST", permission=Permission.VIEW)
def extend_wait(request: ConsoleRequest, run_id: UUID, wait_id: int) -> HttpResponse:
    """Move the clock of what a run waits for."""
    run = request.access.run(run_id)
    wait = Wait.objects.filter(pk=wait_id, run=run).first()
    if wait is None:
        raise Http404("This run has no such wait.")
    request.access.require_verb("extend", run.tenant)
    if request.method == "GET":
        return _ask_extension(request, run, wait)
    reason, until = request.POST.get("reason", "").strip(), instant(request, "expires_at")
    if not reason or until is None:
        wrong = "Give the new end as a date and time." if reason else "Say why: the reason stands in the audit."
        return _ask_extension(request, run, wait, wrong=wrong)
    return answered(request, run, lambda: commands.extend_wait(
        wait.pk, tenant=run.tenant, actor=request.access.actor, reason=reason, expires_at=until), "Done:")  # fmt: skip


def _ask_extension(request: ConsoleRequest, run: Run, wait: Wait, *, wrong: str = "") -> HttpResponse:
    context = {
        **context_for(request, "runs"), "run": run, "wait": wait, "wrong": wrong,
        "fits": wait.state == "open" and wait.expires_at is not None,
        "expires_at": request.POST.get("expires_at") or suggested(wait.expires_at),
        "reason": request.POST.get("reason", ""),
    }  # fmt: skip
    return dialog(request, "extend_wait", context, status=422 if wrong else 200)


def answered(
    request: ConsoleRequest, run: Run, command: Callable[[], Done], done: str,
    again: Callable[[str], HttpResponse] | None = None,
) -> HttpResponse:  # fmt: skip
    """Call the verb; answer with the run as it is afterwards, also when it refused.

    When only its consequences have changed since they were shown, `again` shows them as they are now.
    """
    status, kind = 200, "info"
    try:
        text = f"{done} {command().message}"
    except (TransitionRefused, InputRefused) as refused:
        if again is not None and isinstance(refused, PlanChanged):
            return again(str(refused))
        text, status, kind = str(refused), 409 if isinstance(refused, TransitionRefused) else 422, "error"
    except DurableOpsError as error:
        if error.http_status == 404:
            raise Http404(str(error)) from error
        raise
    if not request.htmx and status == 200:
        said(request, text)
        return redirect("console:run", run_id=run.pk)
    fresh = request.access.run(run.pk)
    context = {**live_context(request, fresh), "said": text, "said_kind": kind}
    if not request.htmx:
        return render(request, "console/run/page.html", context, status=status)
    response = render(request, "console/run/_live.html", context, status=status)
    response["HX-Trigger"] = "verb-done"
    return response


def _ask(request: ConsoleRequest, run: Run, verb: actions.Verb, *, wrong: str = "", status: int = 0) -> HttpResponse:
    children = Run.objects.filter(parent=run, state__in=sorted(OPEN))[:1000].count() if verb.name == "cancel" else 0
    fits = verb.fits(run)
    plan = _plan(verb.name, run) if verb.name in actions.GUARDED else None
    means = actions.consequences(verb.name, run, children=children)
    if verb.name in actions.ENTERING:
        entering = _plan("retry", run)
        means += guarding.meanings(replace(entering, lines=entering.of(*actions.OPEN_FATES))) if entering else []
    context = {
        **context_for(request, "runs"), "run": run, "verb": verb, "wrong": wrong, "fits": fits,
        "means": means + (guarding.meanings(plan) if plan else []), "plan_hash": plan.hash if plan else "",
        "asks_what_was_done": plan is not None and verb.name in ("cancel", "reject") and bool(plan.of("undo", "task")),
        "asks_deadline": verb.name == "extend"
        or (verb.name == "retry" and run.deadline_at is not None and run.deadline_at <= timezone.now()),
        "deadline_at": request.POST.get("deadline_at") or suggested(run.deadline_at),
        "budgets": budgeting.of_run(run) if verb.name == "add_budget" else (),
        "unit": request.POST.get("unit", ""), "amount": request.POST.get("amount", ""),
        "reason": request.POST.get("reason", ""),
    }  # fmt: skip
    return dialog(request, "verb", context, status=status or (422 if wrong else 200))


def _plan(verb: str, run: Run) -> Plan | None:
    """What the verb would do; None for a migration that cannot be made, which says why when it is asked for."""
    with connection.cursor() as cursor:
        try:
            return guard.plan(cursor, "cancel" if verb == "reject" else verb, run.pk)
        except (MigrationRefused, WorkflowNotFound):
            return None


def dialog(request: ConsoleRequest, name: str, context: dict[str, Any], *, status: int) -> HttpResponse:
    """A dialog's content for htmx, a page of its own without."""
    if not request.htmx:
        return render(request, f"console/verbs/{name}.html", context, status=status)
    response = render(request, f"console/verbs/_{name}.html", context, status=status)
    response["HX-Retarget"], response["HX-Reswap"] = "#dialog", "innerHTML"
    return response


def suggested(present: datetime | None) -> str:
    """A day later than now or than it is, whichever is later, as the field wants it."""
    now = timezone.now()
    return f"{timezone.localtime(max(present or now, now) + timedelta(days=1)):%Y-%m-%dT%H:%M}"


def instant(request: ConsoleRequest, name: str) -> datetime | None:
    """An instant as a person gave it, in their zone."""
    try:
        found = parse_datetime(request.POST.get(name, ""))
    except ValueError:
        return None
    return timezone.make_aware(found) if found is not None and timezone.is_naive(found) else found

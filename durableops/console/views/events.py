"""Sending the event that a run waits for, by hand."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.http import Http404, HttpResponse

from durableops.access import Permission
from durableops.checkpoints.codec import parse_input
from durableops.checkpoints.failures import safe_text
from durableops.conf import get_conf
from durableops.console.http import ConsoleRequest, context_for, page
from durableops.console.views.verbs import answered, dialog
from durableops.engine.commands import MAX_REASON_CHARACTERS, Done
from durableops.engine.inbound import send_event
from durableops.errors import EventConflict, InputRefused
from runs.models import AuditEntry, Run, Wait


@page("GET", "POST", permission=Permission.VIEW)
def send(request: ConsoleRequest, run_id: UUID, wait_id: int) -> HttpResponse:
    """A form on GET; POST sends the event under the form's own key, so that a second click sends nothing."""
    run = request.access.run(run_id)
    wait = Wait.objects.filter(pk=wait_id, run=run, kind="event").first()
    if wait is None:
        raise Http404("This run waits for no such event.")
    request.access.require_verb("send_event", run.tenant)
    if request.method == "GET":
        return _ask(request, run, wait)
    reason, text = request.POST.get("reason", "").strip(), request.POST.get("payload", "").strip()
    if not reason:
        return _ask(request, run, wait, wrong="Say why: the reason stands in the audit.")
    try:
        payload = parse_input(text or "null", max_bytes=get_conf().payload_max_bytes)
        done = _send(request, run, wait, payload=payload, reason=reason)
    except (InputRefused, EventConflict) as refused:
        return _ask(request, run, wait, wrong=str(refused))
    return answered(request, run, lambda: done, f"“{wait.name}”:")


def _send(request: ConsoleRequest, run: Run, wait: Wait, *, payload: Any, reason: str) -> Done:
    """The event and its audit entry, in one transaction."""
    actor = request.access.actor
    with transaction.atomic():
        received = send_event(
            wait.name, tenant=run.tenant, actor=actor, correlation=wait.correlation, payload=payload,
            event_key=request.POST.get("once") or None,
        )  # fmt: skip
        if received.created:
            AuditEntry.objects.create(
                tenant=run.tenant, actor=actor, verb="send_event", target_kind="run", target_id=str(run.pk),
                reason=safe_text(reason, limit=MAX_REASON_CHARACTERS),
                after={"event": received.event_id, "name": wait.name, "answered": received.answered},
            )  # fmt: skip
    told = "sent." if received.created else "had been sent already; nothing was sent again."
    return Done(run_id=run.pk, state=run.state, settled=True, message=told)


def _ask(request: ConsoleRequest, run: Run, wait: Wait, *, wrong: str = "") -> HttpResponse:
    context = {
        **context_for(request, "runs"), "run": run, "wait": wait, "wrong": wrong,
        "payload": request.POST.get("payload", ""), "reason": request.POST.get("reason", ""),
        "once": request.POST.get("once") or f"console-{uuid4()}",
    }  # fmt: skip
    return dialog(request, "send", context, status=422 if wrong else 200)

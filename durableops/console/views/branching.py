"""Going back to a checkpoint: a later lineage of the same run, or a fork with the state as it was or edited."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django_htmx.http import HttpResponseClientRedirect

from durableops.access import Permission
from durableops.checkpoints.codec import hash_hex, parse_input
from durableops.conf import get_conf
from durableops.console import diffs, guarding
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.console.views.verbs import answered, dialog, instant, suggested
from durableops.engine import branching, guard
from durableops.errors import InputRefused, PlanChanged, TransitionRefused
from durableops.masking import mask
from runs.models import Checkpoint, Run

MAX_EDITED_CHARACTERS = 200_000
"""A larger state is edited over the API: no page holds it."""
VERBS = {"retry-from": "retry_from", "fork": "fork"}


@page("GET", "POST", permission=Permission.VIEW)
def ask(request: ConsoleRequest, run_id: UUID, seq: int, verb: str) -> HttpResponse:
    """The consequences on GET; POST goes back, or forks."""
    run, name = request.access.run(run_id), VERBS.get(verb, "")
    found = Checkpoint.objects.filter(run=run, seq=seq).select_related("plan").first()
    if found is None or not name:
        raise Http404("There is no such checkpoint, or nothing of this kind to do.")
    request.access.require_verb(name, run.tenant)
    if request.method == "GET":
        return _ask(request, run, found, name)
    if not request.POST.get("reason", "").strip():
        return _ask(request, run, found, name, wrong="Say why: the reason stands in the audit.")
    return _fork(request, run, found) if name == "fork" else _retry_from(request, run, found)


def _retry_from(request: ConsoleRequest, run: Run, found: Checkpoint) -> HttpResponse:
    given: dict[str, Any] = {
        "tenant": run.tenant, "actor": request.access.actor, "reason": request.POST["reason"].strip(),
        "seq": found.seq, "plan_hash": request.POST.get("plan_hash", ""),
        "deadline_at": instant(request, "deadline_at"),
    }  # fmt: skip
    return answered(
        request, run, lambda: branching.retry_from(run.pk, **given), "The run",
        again=lambda wrong: _ask(request, run, found, "retry_from", wrong=wrong, status=409),
    )  # fmt: skip


def _fork(request: ConsoleRequest, run: Run, found: Checkpoint) -> HttpResponse:
    """An edited state is shown as a difference first; sent once more as it was compared, it is applied."""
    try:
        state = _edited(request)
        if state is not None and not _was_compared(request, run, found, state):
            return _ask(request, run, found, "fork", edited=state, status=200)
        done = branching.fork(
            run.pk, tenant=run.tenant, actor=request.access.actor, reason=request.POST["reason"].strip(),
            seq=found.seq, plan_hash=request.POST.get("plan_hash", ""), once=request.POST.get("once", ""), state=state,
        )  # fmt: skip
    except InputRefused as refused:
        return _ask(request, run, found, "fork", wrong=str(refused))
    except TransitionRefused as refused:
        status = 409
        shown = "" if isinstance(refused, PlanChanged) else request.POST.get("plan_hash", "")
        return _ask(request, run, found, "fork", wrong=str(refused), status=status, plan_hash=shown)
    said(request, f"This is the fork: {done.message}")
    target = redirect("console:run", run_id=done.run_id)
    return HttpResponseClientRedirect(target["Location"]) if request.htmx else target


def _edited(request: ConsoleRequest) -> Any:
    """The state as it was typed; None where none was. Raises InputRefused."""
    text = request.POST.get("state", "").strip()
    return parse_input(text, max_bytes=get_conf().payload_max_bytes, what="the state") if text else None


def _was_compared(request: ConsoleRequest, run: Run, found: Checkpoint, state: Any) -> bool:
    """Whether it changes nothing, or its difference was shown. Raises InputRefused for one outside the schema."""
    before = branching.state_text(run, found)
    after = branching.edited(branching.definition_of(run, found), before, state)
    return before == after or request.POST.get("compared", "") == _mark_of(state)


def _mark_of(state: Any) -> str:
    return hash_hex(json.dumps(state, sort_keys=True))


def _ask(
    request: ConsoleRequest, run: Run, found: Checkpoint, verb: str, *, wrong: str = "", status: int = 0,
    edited: Any = None, plan_hash: str = "",
) -> HttpResponse:  # fmt: skip
    with connection.cursor() as cursor:
        plan = guard.plan(cursor, verb, run.pk, seq=found.seq)
    before = branching.state_text(run, found)
    sight = request.access.sees_payloads(run.tenant_id)
    now = timezone.now()
    context: dict[str, Any] = {
        **context_for(request, "runs"), "run": run, "checkpoint": found, "verb": verb, "wrong": wrong,
        "means": guarding.meanings(plan), "plan_hash": plan_hash or plan.hash, "harmless": plan.is_harmless,
        "reason": request.POST.get("reason", ""), "once": request.POST.get("once") or f"console-{uuid4()}",
        "asks_deadline": verb == "retry_from" and run.deadline_at is not None and run.deadline_at <= now,
        "deadline_at": request.POST.get("deadline_at") or suggested(run.deadline_at),
        "edits": verb == "fork" and sight and len(before) <= MAX_EDITED_CHARACTERS,
        "state": request.POST.get("state") or _shown(before), "sight": sight,
    }  # fmt: skip
    if edited is not None:
        after = branching.edited(branching.definition_of(run, found), before, edited)
        context |= {"diff": diffs.lines(before, after), "compared": _mark_of(edited)}
    return dialog(request, "branch", context, status=status or (422 if wrong else 200))


def _shown(text: str) -> str:
    return json.dumps(mask(json.loads(text)), indent=2, ensure_ascii=False)

"""Reading one raw prompt: asks why on GET, shows it on POST, and leaves an audit entry before it does."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render

from durableops.access import Permission
from durableops.console import payloads
from durableops.console.http import ConsoleRequest, context_for, page, refusal
from durableops.engine import prompts
from durableops.errors import SealBroken
from runs.models import Prompt


@page("GET", "POST", permission=Permission.PROMPTS)
def read(request: ConsoleRequest, run_id: UUID, prompt_id: int) -> HttpResponse:
    """One raw prompt, for those who were given the right to read them."""
    run = request.access.run(run_id)
    prompt = Prompt.objects.filter(pk=prompt_id, run=run).first()
    if prompt is None:
        raise Http404(f"This run has no prompt {prompt_id}.")
    request.access.require_reading("prompts", run.tenant)
    context = {**context_for(request, "runs"), "run": run, "prompt": prompt, "text": None, "wrong": ""}
    reason = request.POST.get("reason", "").strip()
    if request.method == "POST" and not reason:
        context["wrong"] = "Say why you read it: the reason stands in the audit."
        return render(request, "console/run/prompt.html", context, status=422)
    if request.method == "POST":
        try:
            text = prompts.read(prompt, tenant=run.tenant, actor=request.access.actor, reason=reason)
        except SealBroken as broken:
            return refusal(request, str(broken), status=500)
        context["text"] = payloads.show("prompt", text, sight=True)
    return render(request, "console/run/prompt.html", context)

"""Starting a run from a form made of the workflow's input schema."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from durableops.access import Permission
from durableops.authoring import registry
from durableops.authoring.checks import BUILT_IN
from durableops.authoring.definitions import WorkflowDefinition
from durableops.console import start_form
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.engine.start import start as start_run
from durableops.errors import InputRefused, StartConflict


@page("GET", "POST", permission=Permission.SIGNED_IN)
def show(request: ConsoleRequest) -> HttpResponse:
    """The form; POST starts the run. The hidden key makes a second click find the first one's run."""
    known = _startable()
    name = request.POST.get("workflow") or request.GET.get("workflow") or next(iter(known), "")
    if name and name not in known:
        raise Http404("There is no such workflow here.")
    if request.method == "GET":
        return _answer(request, known, name)
    tenant = next((t for t in request.access.tenants if t.slug == request.POST.get("tenant", "")), None)
    if tenant is None or not name:
        raise Http404("There is no such tenant or workflow.")
    request.access.require_verb("start", tenant)
    key = request.POST.get("key", "").strip() or request.POST.get("once", "") or None
    try:
        given = start_form.document_of(known[name], request.POST)
        started = start_run(name, given, tenant=tenant, actor=request.access.actor, start_key=key)
    except InputRefused as refused:
        return _answer(request, known, name, wrong=str(refused), status=422)
    except StartConflict as refused:
        return _answer(request, known, name, wrong=str(refused), status=409)
    said(request, "The run was started." if started.created else "This run was started before; here it is.")
    return redirect("console:run", run_id=started.run_id)


def _startable() -> dict[str, WorkflowDefinition]:
    """The newest version of each workflow, the built-in ones left out."""
    return {one.name: one for one in registry.workflows() if not one.name.startswith(BUILT_IN)}


def _answer(
    request: ConsoleRequest, known: dict[str, WorkflowDefinition], name: str, *, wrong: str = "", status: int = 200
) -> HttpResponse:
    access = request.access
    typed = {key: str(value) for key, value in request.POST.items()} if request.method == "POST" else None
    fields = start_form.fields_of(known[name], typed) if name else []
    context: dict[str, Any] = {
        **context_for(request, "runs"), "workflows": list(known.values()), "chosen": known.get(name), "wrong": wrong,
        "asked": [field for field in fields if field.required],
        "optional": [field for field in fields if not field.required],
        # As texts: a template would call the definitions, which are callable.
        "step_ids": [one.id for one in known[name].steps] if name else [],
        "tenants": [tenant for tenant in access.tenants if access.may_verb("start", tenant.pk)],
        "tenant": request.POST.get("tenant", ""), "key": request.POST.get("key", ""),
        "once": request.POST.get("once") or f"console-{uuid4()}",
    }  # fmt: skip
    return render(request, "console/start/page.html", context, status=status)

"""Files that a run waits for: brought here by who may, or by whoever holds a link that works once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from durableops.access import Permission
from durableops.console.http import ConsoleRequest, context_for, page, said
from durableops.engine import receiving
from durableops.engine.receiving import Brought
from durableops.errors import ArtifactGone, ArtifactNotFound, InputRefused, TransitionRefused
from runs.models import Run, Wait


@page("GET", "POST", permission=Permission.VIEW)
def bring(request: ConsoleRequest, run_id: UUID, wait_id: int) -> HttpResponse:
    """A form on GET; POST keeps the file with the run and wakes it."""
    run, wait = _wait(request, run_id, wait_id)
    if request.method == "GET":
        return _ask(request, run, wait)
    try:
        done = receiving.receive(
            wait.pk, tenant=run.tenant, actor=request.access.actor, file=_file(request),
            reason=request.POST.get("reason", "").strip(),
        )  # fmt: skip
    except InputRefused as refused:
        return _ask(request, run, wait, wrong=str(refused), status=422)
    except TransitionRefused as refused:
        return _ask(request, run, wait, wrong=str(refused), status=409)
    said(request, done.message)
    return redirect("console:run", run_id=run.pk)


@page("POST", permission=Permission.VIEW)
def link(request: ConsoleRequest, run_id: UUID, wait_id: int) -> HttpResponse:
    """Make a link with which somebody outside brings the file, and show it."""
    run, wait = _wait(request, run_id, wait_id)
    try:
        made = receiving.make_link(wait.pk, tenant=run.tenant, actor=request.access.actor)
    except TransitionRefused as refused:
        return _ask(request, run, wait, wrong=str(refused), status=409)
    address = request.build_absolute_uri(reverse("console:upload", args=[made.token]))
    return _ask(request, run, wait, address=address, expires_at=made.expires_at)


@page("GET", "POST", permission=Permission.ANYBODY)
def follow(request: ConsoleRequest, token: str) -> HttpResponse:
    """The page of a link, for whoever holds it; it tells nothing of the run but what is asked for."""
    try:
        wait, by = receiving.follow_link(token)
    except (ArtifactNotFound, ArtifactGone) as error:
        return render(request, "console/link_ended.html", {"text": str(error)}, status=error.http_status)
    context: dict[str, Any] = {"wait": wait, "wanted": receiving.wanted(wait), "token": token}
    if request.method == "GET":
        return render(request, "console/upload.html", context)
    try:
        receiving.receive(wait.pk, tenant=wait.run.tenant, actor=f"link of {by}"[:200], file=_file(request))
    except InputRefused as refused:
        return render(request, "console/upload.html", {**context, "wrong": str(refused)}, status=422)
    except TransitionRefused:
        text = "the file was brought already, or is not wanted any more. Nothing was kept."
        return render(request, "console/link_ended.html", {"text": text}, status=409)
    return render(request, "console/upload.html", {**context, "done": True})


def _wait(request: ConsoleRequest, run_id: UUID, wait_id: int) -> tuple[Run, Wait]:
    run = request.access.run(run_id)
    wait = Wait.objects.filter(pk=wait_id, run=run, kind="file").first()
    if wait is None:
        raise Http404("This run waits for no such file.")
    request.access.require_verb("bring_file", run.tenant)
    return run, wait


def _file(request: ConsoleRequest) -> Brought:
    given = request.FILES.get("file")
    if not isinstance(given, UploadedFile):
        raise InputRefused("choose a file first.", path="/file")
    kind = (given.content_type or "").lower()[: receiving.LONGEST_TYPE]
    return Brought(name=given.name or "", content_type=kind, size=given.size or 0, pieces=given.chunks())


def _ask(
    request: ConsoleRequest, run: Run, wait: Wait, *, wrong: str = "", status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        **context_for(request, "runs"), "run": run, "wait": wait, "wanted": receiving.wanted(wait), "wrong": wrong,
        "reason": request.POST.get("reason", ""), **more,
    }  # fmt: skip
    return render(request, "console/run/bring_file.html", context, status=status)

"""Files of runs: reading them, and links that work for a while for whoever holds them."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse

from durableops.access import Permission
from durableops.artifacts import serving
from durableops.console.http import ConsoleRequest, context_for, page, refusal
from durableops.engine import file_links
from durableops.errors import ArtifactGone, ArtifactNotFound
from runs.models import Artifact


@page("GET", permission=Permission.VIEW)
def read(request: ConsoleRequest, run_id: UUID, artifact_id: int) -> HttpResponseBase:
    """One file, for those it is for."""
    artifact = _artifact(request, run_id, artifact_id)
    try:
        answer = serving.answer(artifact, request.headers)
    except ArtifactGone as gone:
        return refusal(request, str(gone), status=gone.http_status)
    file_links.note_reading(artifact, actor=request.access.actor)
    return answer


@page("POST", permission=Permission.VIEW)
def link(request: ConsoleRequest, run_id: UUID, artifact_id: int) -> HttpResponseBase:
    """Make a link to a file and show it."""
    artifact = _artifact(request, run_id, artifact_id)
    made = file_links.make(artifact, actor=request.access.actor)
    context = {
        **context_for(request, "runs"), "run": artifact.run, "artifact": artifact, "expires_at": made.expires_at,
        "address": request.build_absolute_uri(reverse("console:file", args=[made.token])),
    }  # fmt: skip
    return render(request, "console/run/file_link.html", context)


@page("GET", permission=Permission.ANYBODY)
def follow(request: ConsoleRequest, token: str) -> HttpResponseBase:
    """The file of a link, for whoever holds it."""
    try:
        found = file_links.follow(token)
        answer = serving.answer(found.artifact, request.headers)
    except (ArtifactNotFound, ArtifactGone) as error:
        return render(request, "console/link_ended.html", {"text": str(error)}, status=error.http_status)
    file_links.note_reading(found.artifact, actor=f"link of {found.by}"[:200])
    return answer


def _artifact(request: ConsoleRequest, run_id: UUID, artifact_id: int) -> Artifact:
    run = request.access.run(run_id)
    found = Artifact.objects.select_related("run__tenant").filter(pk=artifact_id, run=run).first()
    if found is None:
        raise Http404(f"This run has no file {artifact_id}.")
    request.access.require_reading(found.readable_by, run.tenant)
    return found

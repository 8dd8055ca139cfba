"""Files of runs over the API: listed with the run, read in pieces, or handed on by a link that ends."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from ninja import Router
from ninja.responses import Status

from durableops.access import READS, Permission
from durableops.api.auth import Client, client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import File, FileLink, FileList
from durableops.artifacts import serving
from durableops.engine import file_links
from durableops.errors import ArtifactNotFound, NotPermitted
from runs.models import Artifact

SHOWN = 1000
LARGEST_ID = 2**63 - 1

router = Router(tags=["files"])


@router.get(
    "/{uuid:run_id}/files",
    response={200: FileList, **REFUSALS},
    operation_id="list_files",
    summary="List the files of a run",
    **asks(Permission.VIEW),
)
def list_files(request: HttpRequest, run_id: UUID) -> FileList:
    """The files of a run, newest first, at most a thousand."""
    client = client_of(request)
    if not client.runs().filter(pk=run_id).exists():
        raise no_such_run(run_id)
    rows = Artifact.objects.filter(run_id=run_id).order_by("-id")[: SHOWN + 1]
    return FileList(files=[_shown(client, row) for row in rows[:SHOWN]], more=len(rows) > SHOWN)


@router.get(
    "/{uuid:run_id}/files/{int:file_id}/content",
    response=REFUSALS,
    operation_id="read_file",
    summary="Read a file",
    **asks(Permission.VIEW, content=True),
)
def read(request: HttpRequest, run_id: UUID, file_id: int) -> HttpResponseBase:
    """The bytes of a file, or those that a `Range` asks for. Which further scope that needs is its `readable_by`.

    A download that broke off goes on with `Range: bytes=N-` and `If-Range` with the `ETag` of before, which is the
    SHA-256 of the whole file: compare it when all parts are there.
    """
    client = client_of(request)
    artifact = _readable(client, run_id, file_id)
    answer = serving.answer(artifact, request.headers)
    file_links.note_reading(artifact, actor=client.actor)
    return answer


@router.post(
    "/{uuid:run_id}/files/{int:file_id}/link",
    response={201: FileLink, **REFUSALS},
    operation_id="link_file",
    summary="Make a link to a file",
    **asks(Permission.VIEW),
)
def link(request: HttpRequest, run_id: UUID, file_id: int) -> Status[FileLink]:
    """Make a link that lets whoever holds it read the file for a while, without a token."""
    client = client_of(request)
    made = file_links.make(_readable(client, run_id, file_id), actor=client.actor)
    address = request.build_absolute_uri(reverse("console:file", args=[made.token]))
    return Status(201, FileLink(url=address, expires_at=made.expires_at))


def _readable(client: Client, run_id: UUID, file_id: int) -> Artifact:
    found = None
    if file_id <= LARGEST_ID:
        of_run = Artifact.objects.select_related("run__tenant").filter(run_id=run_id, run__tenant=client.tenant)
        found = of_run.filter(pk=file_id).first()
    if found is None:
        raise ArtifactNotFound(f"run {run_id} has no file {str(file_id)[:20]} here.")
    if not _may_read(client, found):
        needs = READS[found.readable_by].value
        raise NotPermitted(f"reading file {file_id} needs the scope {needs}. Nothing was read.", needs=needs)
    return found


def _may_read(client: Client, artifact: Artifact) -> bool:
    return READS[artifact.readable_by] in client.permissions


def _shown(client: Client, row: Artifact) -> File:
    return File(
        id=row.pk,
        name=row.name,
        data_class=row.data_class,
        step=row.step_id,
        content_type=row.content_type,
        bytes=row.size_bytes,
        sha256=row.content_hash,
        readable_by=READS[row.readable_by].value,
        readable=_may_read(client, row),
        at=row.at,
    )

"""Files of runs over the API: listed with the run, read in pieces, or handed on by a link that ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, UnreadablePostError
from django.http.response import HttpResponseBase
from django.urls import reverse
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, Field

from durableops.access import READS, VERBS, Permission
from durableops.api.auth import Client, client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.api.schemas import File, FileLink, FileList, VerbDone
from durableops.api.verbs import done
from durableops.artifacts import serving
from durableops.engine import file_links, receiving
from durableops.engine.commands import MAX_REASON_CHARACTERS
from durableops.engine.receiving import Brought
from durableops.errors import ArtifactNotFound, InputRefused, NotPermitted, RunNotFound
from runs.models import Artifact, Wait

SHOWN = 1000
LARGEST_ID = 2**63 - 1
PIECE_BYTES = 256 * 1024

router = Router(tags=["files"])


class BringQuery(BaseModel):
    """How the file is called where it comes from."""

    name: str = Field(min_length=1, max_length=receiving.LONGEST_NAME)
    reason: str = Field("", max_length=MAX_REASON_CHARACTERS, description="Kept in the audit.")


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


@router.put(
    "/{uuid:run_id}/waits/{int:wait_id}/file", response={200: VerbDone, **REFUSALS}, operation_id="bring_file",
    url_name="bring_file",  # its body is not kept from being large: see `urls`
    summary="Bring the file that a run waits for", **asks(VERBS["bring_file"], brings=True),
)  # fmt: skip
def bring(request: HttpRequest, run_id: UUID, wait_id: int, query: Annotated[BringQuery, Query()]) -> Status[VerbDone]:
    """Send the bytes of the file as the body, with its media type as `Content-Type`, once: the run goes on with it.
    They are taken in pieces, and kept only if kind and size are what the run asked for; refused (409) when somebody
    has brought it, or the wait is over."""
    client = client_of(request)
    refuse_unknown(request, BringQuery)
    _awaited(client, run_id, wait_id)
    size = int(request.META.get("CONTENT_LENGTH") or 0)
    file = Brought(
        name=query.name, content_type=(request.content_type or "").lower()[: receiving.LONGEST_TYPE], size=size,
        pieces=_pieces(request, size),
    )  # fmt: skip
    return done(receiving.receive(wait_id, tenant=client.tenant, actor=client.actor, file=file, reason=query.reason))


@router.post(
    "/{uuid:run_id}/waits/{int:wait_id}/link", response={201: FileLink, **REFUSALS}, operation_id="link_upload",
    summary="Let somebody outside bring the file", **asks(VERBS["bring_file"]),
)  # fmt: skip
def link_upload(request: HttpRequest, run_id: UUID, wait_id: int) -> Status[FileLink]:
    """Make a link with which whoever holds it brings the file, once, without a token."""
    client = client_of(request)
    _awaited(client, run_id, wait_id)
    made = receiving.make_link(wait_id, tenant=client.tenant, actor=client.actor)
    address = request.build_absolute_uri(reverse("console:upload", args=[made.token]))
    return Status(201, FileLink(url=address, expires_at=made.expires_at))


def _awaited(client: Client, run_id: UUID, wait_id: int) -> None:
    rows = Wait.objects.filter(run_id=run_id, tenant=client.tenant, kind="file")
    if wait_id > LARGEST_ID or not rows.filter(pk=wait_id).exists():
        raise RunNotFound(f"run {run_id} waits for no file {str(wait_id)[:20]} here.", run=str(run_id))


def _pieces(request: HttpRequest, size: int) -> Iterator[bytes]:
    """The body, never more than a piece of it in memory. Raises InputRefused when less comes than was announced."""
    left = size
    while left > 0:
        try:
            piece = request.read(min(PIECE_BYTES, left))
        except UnreadablePostError:
            piece = b""
        if not piece:
            raise InputRefused(f"the body ended {left} bytes before its {size}. Nothing was kept.", place="body")
        left -= len(piece)
        yield piece


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

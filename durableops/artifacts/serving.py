"""A file as an answer over HTTP: in pieces, always to be saved, never run by a browser. Rights are asked before."""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from durableops.artifacts import ranges, storage
from runs.models import Artifact

# What a browser may know a file to be; everything else is bytes to it, whatever its author or sender said.
_TOLD = frozenset(
    {
        "application/json",
        "application/pdf",
        "application/zip",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/plain",
    }
)


def answer(artifact: Artifact, headers: Mapping[str, str]) -> HttpResponseBase:
    """The file itself, or the part of it that the request's headers ask for: so a download that broke off goes on.

    Only the whole file is compared with its hash here. Raises ArtifactGone when the storage has it no more.
    """
    kind = artifact.content_type.partition(";")[0].strip().lower()
    kind = kind if kind in _TOLD else "application/octet-stream"
    size, sealed = artifact.size_bytes, bool(artifact.sealed_with)
    try:
        part = ranges.wanted(_range(artifact, headers), size=size)
    except ranges.OutOfRange:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    if part is None:
        chunks = storage.read(artifact.path, content_hash=artifact.content_hash, sealed=sealed)
        response = StreamingHttpResponse(chunks, content_type=kind)
    else:
        chunks = storage.read_part(artifact.path, sealed=sealed, first=part.first, size=part.size)
        response = StreamingHttpResponse(chunks, content_type=kind, status=206)
        response["Content-Range"] = f"bytes {part.first}-{part.last}/{size}"
    response["Accept-Ranges"] = "bytes"
    response["Content-Length"] = str(size if part is None else part.size)
    response["Content-Disposition"] = content_disposition_header(True, file_name(artifact.name)) or "attachment"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["X-Content-Type-Options"] = "nosniff"
    response["ETag"] = _tag(artifact)
    return response


def _range(artifact: Artifact, headers: Mapping[str, str]) -> str:
    """The range that is asked for; none if it is a part of another content that the rest is wanted of."""
    return headers.get("Range", "") if headers.get("If-Range", _tag(artifact)) == _tag(artifact) else ""


def _tag(artifact: Artifact) -> str:
    return f'"{artifact.content_hash}"'


def file_name(name: str) -> str:
    """The last part of an artifact's name, without what would lead somewhere else."""
    last = name.replace("\\", "/").rpartition("/")[2].lstrip(".")
    return last or "file"

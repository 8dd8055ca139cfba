"""A file as an answer over HTTP: in pieces, always to be saved, never run by a browser. Rights are asked before."""

from __future__ import annotations

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from durableops.artifacts import storage
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


def answer(artifact: Artifact) -> StreamingHttpResponse:
    """The file itself. Raises ArtifactGone when the storage has it no more."""
    kind = artifact.content_type.partition(";")[0].strip().lower()
    chunks = storage.read(artifact.path, content_hash=artifact.content_hash, sealed=bool(artifact.sealed_with))
    response = StreamingHttpResponse(chunks, content_type=kind if kind in _TOLD else "application/octet-stream")
    response["Content-Length"] = str(artifact.size_bytes)
    response["Content-Disposition"] = content_disposition_header(True, file_name(artifact.name)) or "attachment"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["X-Content-Type-Options"] = "nosniff"
    response["ETag"] = f'"{artifact.content_hash}"'
    return response


def file_name(name: str) -> str:
    """The last part of an artifact's name, without what would lead somewhere else."""
    last = name.replace("\\", "/").rpartition("/")[2].lstrip(".")
    return last or "file"

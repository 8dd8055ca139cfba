"""Storing the bytes of artifacts through Django's storage, under their content hash."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import IO, Any

from django.core.files import File
from django.core.files.storage import default_storage

CHUNK_BYTES = 1024 * 1024


def store(data: bytes | str | Path, *, tenant: str) -> dict[str, Any]:
    """Store bytes, text or a file and return content hash, size and path. Done twice, it is done once.

    The name is the hash of what is in it, so that a file left half-written by a crash can be told from a whole one.
    """
    with tempfile.SpooledTemporaryFile(max_size=CHUNK_BYTES) as copy:
        content_hash = _fill(copy, data)
        size = copy.tell()
        path = f"artifacts/{tenant}/{content_hash[:2]}/{content_hash}"
        if default_storage.exists(path) and default_storage.size(path) != size:
            default_storage.delete(path)
        if not default_storage.exists(path):
            copy.seek(0)
            default_storage.save(path, File(copy, name=path))
    return {"content_hash": content_hash, "size_bytes": size, "path": path}


def _fill(copy: IO[bytes], data: bytes | str | Path) -> str:
    digest = hashlib.sha256()
    if isinstance(data, Path):
        with data.open("rb") as source:
            shutil.copyfileobj(source, copy, CHUNK_BYTES)
        copy.seek(0)
        while chunk := copy.read(CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest()
    raw = data.encode() if isinstance(data, str) else data
    copy.write(raw)
    digest.update(raw)
    return digest.hexdigest()

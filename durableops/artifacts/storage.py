"""The bytes of files in Django's storage: written once under a name nobody else uses, and read back, in pieces.

A file is written while only a row of `runs_loose_file` names it, and is there for everybody once an artifact's row
does. So a half-written file is never seen, whatever kills its writer.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from django.core.files import File
from django.core.files.storage import FileSystemStorage, default_storage

from durableops import sealing
from durableops.errors import ArtifactDamaged, ArtifactGone

CHUNK_BYTES = 256 * 1024

type Given = bytes | str | Path | IO[bytes] | Iterable[bytes]
"""What a file may be made of."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file that is written, whole and durably."""

    path: str
    content_hash: str
    size_bytes: int
    sealed_with: str


def new_path(*, tenant: str, run_id: object) -> str:
    """A name in the storage that no file had before."""
    return f"artifacts/{tenant}/{run_id}/{uuid.uuid4().hex}"


def write(path: str, data: Given, *, sealed: bool = False) -> Stored:
    """Write a file, never holding more than a piece of it in memory; hash and size are those of what was given.

    Raises whatever the storage raises.
    """
    counted = _Counted(_chunks(data))
    chunks = sealing.seal_stream(iter(counted)) if sealed else iter(counted)
    if _is_folder():
        _save(path, io.BufferedReader(_Reader(chunks), CHUNK_BYTES))
        _make_durable(Path(default_storage.path(path)))
    else:
        # Clients of object stores want to know the size first, and to begin again.
        with tempfile.TemporaryFile() as copy:
            for chunk in chunks:
                copy.write(chunk)
            copy.seek(0)
            _save(path, copy)
    return Stored(
        path=path,
        content_hash=counted.digest.hexdigest(),
        size_bytes=counted.size,
        sealed_with=sealing.key_id() if sealed else "",
    )


def hash_of(data: Given) -> str | None:
    """The content hash of what can be read twice; None for a stream."""
    if not isinstance(data, bytes | str | Path):
        return None
    counted = _Counted(_chunks(data))
    for _ in counted:
        pass
    return counted.digest.hexdigest()


def read(path: str, *, content_hash: str, sealed: bool) -> Iterator[bytes]:
    """The bytes of a file as they were given, piece by piece.

    Raises ArtifactGone before the first piece if there is no such file, and ArtifactDamaged instead of the last one
    if the bytes are not those that were written: whoever reads it all has the right ones.
    """
    _must_exist(path)
    return _verified(path, content_hash, sealed=sealed)


def read_part(path: str, *, sealed: bool, first: int, size: int) -> Iterator[bytes]:
    """So many bytes of a file from a place on, piece by piece; of a sealed one, what comes before is decrypted too.

    Whether they are what was written is for whoever has the whole to find out. Raises ArtifactGone before the first
    piece if there is no such file.
    """
    _must_exist(path)
    return _sealed_part(path, first, size) if sealed else _plain_part(path, first, size)


def remove(path: str) -> None:
    """Remove a file, and the folder that it leaves empty. Done twice, it is done once."""
    default_storage.delete(path)
    if _is_folder():
        with suppress(OSError):
            Path(default_storage.path(path)).parent.rmdir()


def as_file(chunks: Iterator[bytes]) -> IO[bytes]:
    """A readable file made of pieces."""
    return io.BufferedReader(_Reader(chunks), CHUNK_BYTES)


def _verified(path: str, content_hash: str, *, sealed: bool) -> Iterator[bytes]:
    # Opened with the first piece: an answer that nobody reads opens nothing.
    digest = hashlib.sha256()
    with default_storage.open(path) as file:
        held = b""
        raw: Iterator[bytes] = iter(partial(file.read, CHUNK_BYTES), b"")
        for chunk in sealing.unseal_stream(raw) if sealed else raw:
            digest.update(chunk)
            if held:
                yield held
            held = chunk
    if digest.hexdigest() != content_hash:
        raise ArtifactDamaged(f"file {path!r} does not hold what was written: its hash differs.")
    if held:
        yield held


def _plain_part(path: str, first: int, size: int) -> Iterator[bytes]:
    with default_storage.open(path) as file:
        file.seek(first)
        while size and (chunk := file.read(min(CHUNK_BYTES, size))):
            yield chunk
            size -= len(chunk)


def _sealed_part(path: str, first: int, size: int) -> Iterator[bytes]:
    with default_storage.open(path) as file:
        for chunk in sealing.unseal_stream(iter(partial(file.read, CHUNK_BYTES), b"")):
            piece, first = chunk[first : first + size], max(0, first - len(chunk))
            if piece:
                yield piece
                size -= len(piece)
            if not size:
                return


def _must_exist(path: str) -> None:
    if not default_storage.exists(path):
        raise ArtifactGone(f"the storage has no file {path!r} any more.")


def _is_folder() -> bool:
    """Whether the storage is a folder of this machine (or one that looks like it)."""
    return isinstance(default_storage, FileSystemStorage)


def _save(path: str, content: IO[bytes]) -> None:
    saved = default_storage.save(path, File(content, name=path))
    if saved != path:
        default_storage.delete(saved)
        raise FileExistsError(f"the storage has a file {path!r} already.")


def _make_durable(path: Path) -> None:
    """Let the disk have it before a row in the database names it."""
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _chunks(data: Given) -> Iterator[bytes]:
    if isinstance(data, str):
        yield from _cut(data.encode())
    elif isinstance(data, bytes | bytearray | memoryview):
        yield from _cut(bytes(data))
    elif isinstance(data, Path):
        with data.open("rb") as source:
            yield from _of_file(source)
    elif callable(getattr(data, "read", None)):
        yield from _of_file(data)  # type: ignore[arg-type]  # it has the one method that is needed
    elif isinstance(data, Iterable):
        for piece in data:
            yield from _cut(_bytes(piece))
    else:
        raise TypeError(_WANTED.format(type(data).__name__))


_WANTED = "a file was given as {}; give bytes, a text, a Path, a file opened for reading bytes, or pieces of bytes."


def _bytes(piece: object) -> bytes:
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise TypeError(_WANTED.format(f"pieces of {type(piece).__name__}"))
    return bytes(piece)


def _of_file(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield _bytes(chunk)


def _cut(whole: bytes) -> Iterator[bytes]:
    for start in range(0, len(whole), CHUNK_BYTES):
        yield whole[start : start + CHUNK_BYTES]


class _Counted:
    """Pieces that pass by, with their hash and size."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.digest = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            yield chunk


class _Reader(io.RawIOBase):
    """Pieces as a stream that can be read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            try:
                self._rest = memoryview(next(self._chunks))
            except StopIteration:
                return 0
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def close(self) -> None:
        closing = getattr(self._chunks, "close", None)
        if closing is not None and not self.closed:
            closing()
        super().close()

"""Encryption at rest: what is sealed can be read only with one of the keys of this installation.

Keys are Fernet keys, newest first: the first one seals, all of them open. So a new key is put in front, everything is
sealed again (`manage.py reencrypt`), and the old key is taken away. Streams are sealed in frames, each of which knows
its stream, its place and whether it is the last: a file that was cut, mixed or reordered is refused.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from durableops.errors import SealBroken

if TYPE_CHECKING:
    from cryptography.fernet import Fernet, MultiFernet

# cryptography is imported by the first who seals: most workers never do.
_MAGIC = b"dops1"
_STREAM_BYTES = 16
_LENGTH_BYTES = 4
FRAME_BYTES = 256 * 1024
_LARGEST_FRAME = FRAME_BYTES + 4096


def seal(plain: bytes) -> bytes:
    """Encrypt with the newest key."""
    return _all_keys().encrypt(plain)


def unseal(sealed: bytes) -> bytes:
    """Decrypt with whichever key it was sealed with. Raises SealBroken when none fits or a byte was changed."""
    from cryptography.fernet import InvalidToken

    try:
        return _all_keys().decrypt(bytes(sealed))
    except InvalidToken:
        raise SealBroken(
            "a sealed text cannot be read: it was changed, or its key is missing from DURABLEOPS_ENCRYPTION_KEYS. "
            "Put the key that it was sealed with behind the present one."
        ) from None


def is_newest(sealed: bytes) -> bool:
    """Whether it was sealed with the newest key, so that it needs none of the older ones."""
    from cryptography.fernet import InvalidToken

    try:
        _fernet(keys()[0]).decrypt(bytes(sealed))
    except InvalidToken:
        return False
    return True


def seal_stream(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Encrypt a stream in frames, holding one at a time."""
    stream = os.urandom(_STREAM_BYTES)
    yield _MAGIC + stream
    number, held = 0, bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) > FRAME_BYTES:
            yield _frame(stream, number, bytes(held[:FRAME_BYTES]), last=False)
            number, held = number + 1, held[FRAME_BYTES:]
    yield _frame(stream, number, bytes(held), last=True)


def unseal_stream(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decrypt what `seal_stream` made. Raises SealBroken when it is cut, reordered, changed or of an unknown key."""
    source = _Pieces(chunks)
    if source.take(len(_MAGIC)) != _MAGIC:
        raise SealBroken("a sealed file does not begin like one.")
    stream = source.take(_STREAM_BYTES)
    number, last = 0, False
    while not last:
        length = int.from_bytes(source.take(_LENGTH_BYTES))
        if not 0 < length <= _LARGEST_FRAME:
            raise SealBroken("a sealed file has a frame of an impossible length.")
        plain = unseal(base64.urlsafe_b64encode(source.take(length)))
        head = _STREAM_BYTES + 9
        if plain[:_STREAM_BYTES] != stream or int.from_bytes(plain[_STREAM_BYTES : head - 1]) != number:
            raise SealBroken("the frames of a sealed file are not in their order.")
        last = plain[head - 1] == 1
        number += 1
        yield plain[head:]
    if source.rest():
        raise SealBroken("a sealed file goes on behind its end.")


def key_id() -> str:
    """Names the key that seals now, without telling anything about it."""
    return hashlib.sha256(b"id:" + keys()[0].encode()).hexdigest()[:16]


def keys() -> list[str]:
    """The keys, newest first. Without any in the settings, one is made of SECRET_KEY."""
    # Asked here: authors import the names of a workflow without Django.
    from django.conf import settings

    return list(settings.DURABLEOPS_ENCRYPTION_KEYS) or [_from_secret(settings.SECRET_KEY)]


def is_key(text: str) -> bool:
    """Whether a text is a key."""
    try:
        return len(base64.urlsafe_b64decode(text.encode("ascii"))) == 32 and len(text) == 44
    except ValueError:
        return False


def new_key() -> str:
    """A new random key."""
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()


def _frame(stream: bytes, number: int, chunk: bytes, *, last: bool) -> bytes:
    token = base64.urlsafe_b64decode(seal(stream + number.to_bytes(8) + bytes([last]) + chunk))
    return len(token).to_bytes(_LENGTH_BYTES) + token


@lru_cache(maxsize=8)
def _from_secret(secret: str) -> str:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    made = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"durableops sealing").derive(secret.encode())
    return base64.urlsafe_b64encode(made).decode()


def _all_keys() -> MultiFernet:
    from cryptography.fernet import MultiFernet

    return MultiFernet([_fernet(key) for key in keys()])


@lru_cache(maxsize=32)
def _fernet(key: str) -> Fernet:
    from cryptography.fernet import Fernet

    return Fernet(key)


class _Pieces:
    """Exact numbers of bytes from a stream of pieces."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = bytearray()

    def take(self, count: int) -> bytes:
        while len(self._held) < count:
            piece = next(self._chunks, None)
            if piece is None:
                raise SealBroken("a sealed file ends in the middle.")
            self._held += piece
        taken, self._held = bytes(self._held[:count]), self._held[count:]
        return taken

    def rest(self) -> bool:
        return bool(self._held) or next(self._chunks, None) is not None

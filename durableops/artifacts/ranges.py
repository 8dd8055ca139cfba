"""Which part of a file a request asks for (RFC 9110, section 14): one range of bytes, or the whole. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE = re.compile(r"bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Bytes `first` to `last`, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class OutOfRange(Exception):
    """The range that is asked for lies behind the end of the file."""


def wanted(header: str, *, size: int) -> Part | None:
    """The part that a `Range` header asks for of a file of so many bytes; None for the whole.

    What is no range of bytes, or several of them, is the whole file: whoever asks must be able to take it.
    Raises OutOfRange.
    """
    found = _ONE.fullmatch(header.strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first = int(found[1])
        last = min(int(found[2]), size - 1) if found[2] else size - 1
        if found[2] and int(found[2]) < first:
            return None
    if first > last:
        raise OutOfRange
    return Part(first=first, last=last)

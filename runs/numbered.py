"""Statements with `%(name)s` in them as the server takes them, read once for each text.

psycopg reads long ones anew each time, which took longer than the rest of what a commit costs its process.
"""

from __future__ import annotations

import re
from functools import lru_cache

_MARK = re.compile(r"%(?:%|\((\w+)\)s)")


@lru_cache(maxsize=512)
def numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """The statement with `$1`, `$2` … in place of its names, and the names in that order; for a RawCursor."""
    names: dict[str, int] = {}

    def put(mark: re.Match[str]) -> str:
        name = mark[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _MARK.sub(put, text).encode(), tuple(names)

"""Making what looks secret unreadable, by name and by shape, alike in every view. Who sees what is said elsewhere."""

from __future__ import annotations

import re
from typing import Any

MASK = "••••••"
MAX_DEPTH = 64

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|^pwd$|secret|token$|api[-_]?key|authori[sz]ation|cookie|credential|private[-_]?key",
    re.IGNORECASE,
)
# In running text: bearer and basic credentials, and the user part of addresses.
_SECRET_TEXT = (
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@"), rf"\1{MASK}@"),
    (
        re.compile(r"(?i)\b(password|secret|token|api_?key)(['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]{4,}"),
        rf"\1\2{MASK}",
    ),
)


def mask(value: Any, depth: int = 0) -> Any:
    """The same value with what looks secret masked, by name and by shape."""
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {
            key: MASK if _SECRET_NAME.search(str(key)) and item not in (None, "", [], {}) else mask(item, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask(item, depth + 1) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def mask_text(text: str) -> str:
    """Running text with credentials masked."""
    for pattern, instead in _SECRET_TEXT:
        text = pattern.sub(instead, text)
    return text

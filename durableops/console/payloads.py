"""Payloads as people may see them: parsed, masked, cut, with their size. Escaping is the templates' work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from durableops.masking import mask, mask_text

MAX_SHOWN_CHARACTERS = 20_000


@dataclass(frozen=True, kw_only=True)
class Payload:
    """One payload ready to be shown."""

    title: str
    text: str
    size: int
    """Bytes of what is stored."""
    cut: int = 0
    """Characters that are not shown."""
    hidden: bool = False
    """Whether the person has no payload sight; `text` is empty then."""
    unreadable: bool = False


def show(title: str, stored: Any, *, sight: bool) -> Payload | None:
    """Prepare stored JSON text (or a value) for a page. None when there is nothing."""
    if stored is None or stored == "":
        return None
    raw = stored if isinstance(stored, str) else json.dumps(stored, ensure_ascii=False)
    size = len(raw.encode("utf-8", "surrogatepass"))
    if not sight:
        return Payload(title=title, text="", size=size, hidden=True)
    try:
        shown = json.dumps(mask(json.loads(raw)), indent=2, ensure_ascii=False)
        broken = False
    except (ValueError, RecursionError):
        shown, broken = mask_text(raw), True
    cut = max(0, len(shown) - MAX_SHOWN_CHARACTERS)
    return Payload(title=title, text=shown[:MAX_SHOWN_CHARACTERS], size=size, cut=cut, unreadable=broken)


def facts_of(text: str) -> list[tuple[str, str]]:
    """The facts of an approval as name and plain text; a nested value stays JSON."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return [("facts", mask_text(text))]
    if not isinstance(found, dict):
        found = {"facts": found}
    masked = mask(found)
    return [(str(name), _plain(value)) for name, value in masked.items()]


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

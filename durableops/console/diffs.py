"""What changed between two checkpoints' states, as lines. Masked before they are compared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from durableops.console.payloads import MAX_SHOWN_CHARACTERS
from durableops.masking import mask, mask_text
from runs.models import Checkpoint, Run


@dataclass(frozen=True, kw_only=True)
class Line:
    kind: str
    """add, del, at or same."""
    text: str


def states(run: Run, seqs: Iterable[int]) -> dict[int, str]:
    """The state as of each of these checkpoints: its own, or that of the earlier one it names."""
    wanted = sorted(set(seqs))
    found = dict(Checkpoint.objects.filter(run=run, seq__in=wanted).values_list("seq", "state_seq"))
    texts = dict(Checkpoint.objects.filter(run=run, seq__in=set(found.values())).values_list("seq", "state"))
    return {seq: texts.get(at) or "" for seq, at in found.items()}


def lines(before: str | None, after: str | None) -> list[Line]:
    """A unified difference of two JSON texts, pretty-printed."""
    told = difflib.unified_diff(_pretty(before), _pretty(after), lineterm="", n=3)
    kinds = {"+": "add", "-": "del", "@": "at"}
    return [Line(kind=kinds.get(text[:1], "same"), text=text) for text in told if not text.startswith(("+++", "---"))]


def _pretty(text: str | None) -> list[str]:
    try:
        shown = json.dumps(mask(json.loads(text or "null")), indent=2, ensure_ascii=False, sort_keys=True)
    except (ValueError, RecursionError):
        shown = mask_text(text or "")
    return shown[:MAX_SHOWN_CHARACTERS].splitlines()

"""Data classes, how long each is kept unless somebody says otherwise, and which of them each holder needs."""

from __future__ import annotations

DAY = 24 * 3600

CLASSES = (
    "temp_file",
    "raw_prompt",
    "effect_body",
    "effect_summary",
    "decision",
    "checkpoint",
    "input",
    "deliverable",
    "event",
    "effect_key",
)
"""The classes of a run's own data, in the order in which they go; with `effect_key` goes the run's row itself."""

REOPEN = "reopen"
"""Not a class, but kept for a while all the same: the right to reopen a run that ended badly."""
SUBJECTS = (*CLASSES, "audit", REOPEN)
"""What a rule may be about."""

DEFAULT_DAYS: dict[str, int | None] = {
    "temp_file": 0,
    "raw_prompt": 7,
    "effect_body": 30,
    "effect_summary": 90,
    "decision": 90,
    "checkpoint": 30,
    "input": 90,
    "deliverable": 365,
    "event": 90,
    "effect_key": 400,
    "audit": None,
    REOPEN: 30,
}
"""Days from the end of the run, or from when it stopped being needed; None is for ever."""

_FACTS = ("effect_body", "effect_summary", "decision", "checkpoint", "input", "deliverable", "effect_key")
_TO_GO_ON = ("temp_file", *_FACTS)
_TO_DECIDE = ("event", *_FACTS)

NEEDS: dict[str, tuple[str, ...]] = {
    "open": CLASSES,
    "reopenable": _TO_GO_ON,
    "unsettled_effect": _TO_DECIDE,
    "compensation_owed": _TO_DECIDE,
    "open_wait": _TO_DECIDE,
    "open_review": _TO_DECIDE,
    "parent": ("deliverable", "effect_key"),
    "child": ("input", "deliverable", "effect_key"),
    "child_rows": ("effect_key",),
    "undone_by_it": ("effect_key",),
    "legal_hold": CLASSES,
    "key_window": ("effect_key",),
    "shared_effect": ("effect_body", "effect_key"),
}
"""What may hold a run's data, and which classes it needs. A raw prompt and a temporary file help nobody to decide."""

CLOSES = frozenset(_TO_GO_ON) - {"effect_key"}
"""Once one of these has gone, the run cannot go on any more and is never reopened."""

HOLDERS: dict[str, str] = {
    "open": "the run is open",
    "reopenable": "the run may still be reopened",
    "unsettled_effect": "an effect is not settled",
    "compensation_owed": "something it did is to be undone",
    "open_wait": "somebody is still asked something",
    "open_review": "somebody has to decide how it goes on",
    "parent": "its parent may still read it",
    "child": "a child of it is open",
    "child_rows": "children of it are still on record",
    "undone_by_it": "what it undid is still on record",
    "legal_hold": "a legal hold",
    "key_window": "the other side still knows a key",
    "shared_effect": "an effect of it is shared by the whole tenant",
}
"""The same in words. `class:x` stands for data of class x that is kept longer than the run's row would be."""


def default_seconds(subject: str) -> int | None:
    """How long a subject is kept without any rule; None is for ever."""
    days = DEFAULT_DAYS[subject]
    return None if days is None else days * DAY


def in_words(holder: str) -> str:
    """Why something stays, for people."""
    kind, _, name = holder.partition(":")
    return f"its data of class {name.replace('_', ' ')} is kept" if kind == "class" else HOLDERS[holder]

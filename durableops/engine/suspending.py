"""Leaving a step to wait: the signal, and the row that says for what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from durableops.errors import Fatal, Suspended

LONGEST = timedelta(days=365 * 100)
"""No wait is longer than a hundred years: beyond that a date is a mistake."""


class Suspend(Suspended):
    """Leave the step and wait."""

    def __init__(self, wait: dict[str, Any], *, children: list[Any] | None = None, again: bool = False) -> None:
        super().__init__(f"waits for {wait['kind']} {wait['name']!r}.")
        self.wait = wait
        self.children = children
        self.again = again
        """Whether the wait is on record and simply goes on."""


def wait_row(
    kind: str, name: str, key: str, *, correlation: str = "", due: timedelta | None = None,
    expires: timedelta | None = None, on_timeout: str = "raise", turns: int = 0, question: str = "", facts: str = "",
    facts_hash: str = "", since: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "kind": kind,
        "name": name,
        "author_key": key,
        "correlation": correlation,
        "since": since,
        "due_seconds": None if due is None else due.total_seconds(),
        "expires_seconds": None if expires is None else not_too_long(expires).total_seconds(),
        "on_timeout": on_timeout,
        "turns": turns,
        "question": question,
        "facts": facts,
        "facts_hash": facts_hash,
    }


def not_too_long(length: timedelta) -> timedelta:
    """The same length. Raises Fatal for one that must be a mistake."""
    if length > LONGEST:
        raise Fatal(f"a wait of {length.days} days was asked for; at most {LONGEST.days} are possible.")
    return length

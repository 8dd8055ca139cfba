"""The only functions RQ calls. They carry nothing: what is to be done is read from the record."""

from __future__ import annotations

from durableops.engine.listening import current_listener


def answer_bell() -> None:
    """Take runs until nothing is claimable."""
    current_listener().fill()

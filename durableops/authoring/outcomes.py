"""What waits give back to a step: what a person decided, the file somebody brought, how a child run ended."""

from __future__ import annotations

from typing import Any, Protocol


class Answer(Protocol):
    """What a person decided."""

    @property
    def approved(self) -> bool:
        """Whether they said yes."""

    @property
    def by(self) -> str:
        """Who decided."""

    @property
    def comment(self) -> str:
        """What they added."""

    @property
    def choice(self) -> str:
        """The name of what they chose; `approve` or `refuse` where no choices were given."""

    @property
    def values(self) -> Any:
        """What they filled in, as the form's model (a dict where names and types were given); None after a no."""


class ReceivedFile(Protocol):
    """A file that somebody brought."""

    @property
    def name(self) -> str:
        """The name it is kept under."""

    @property
    def file_name(self) -> str:
        """What it was called where it came from; told, never relied on."""

    @property
    def content_type(self) -> str:
        """What whoever brought it said it is."""

    @property
    def content_hash(self) -> str:
        """SHA-256 of its bytes."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""

    @property
    def by(self) -> str:
        """Who brought it."""


class ChildOutcome(Protocol):
    """How one child run ended."""

    @property
    def run_id(self) -> str:
        """Identifier of the child run."""

    @property
    def state(self) -> str:
        """The terminal state it ended in."""

    @property
    def result(self) -> Any:
        """What its last step returned."""

    @property
    def error(self) -> str:
        """Why it did not succeed; empty if it did."""

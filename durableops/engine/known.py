"""What a holder finds on record of a step that was entered before."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(kw_only=True)
class KnownEffect:
    """An effect that was on record when the step (or page) was entered again."""

    id: int
    slot: str
    key: str
    request_hash: str
    state: str
    attempts: int
    result: str | None
    error_class: str
    error_message: str
    window_closes: float | None
    """On `clock.uptime`; None when the downstream never forgets."""
    fence: int
    run_id: UUID
    owner: str = ""
    """Of an effect found by its slot: whether the run that made it is `alive` and at it, `coming` back to it, or
    `gone` for now."""


@dataclass(kw_only=True)
class KnownWait:
    """A wait that was on record when the step was entered again."""

    id: int
    state: str
    answer: str | None
    answered_by: str
    on_timeout: str
    turns: int
    due: bool
    """Whether its own time has come (or it has none)."""
    facts_hash: str = ""
    """Approvals: of what is shown."""

"""The desk's request log against our records. Pure: it is given both and says what does not fit.

The desk deduplicates, so it would hide our repeats. Here every key that it saw more than once must belong to a crash or
a timeout that our records name and that other records bear out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from examples.demo.desk_client import DeskRequest, DeskTicket

CALL_TIMEOUT = "call timeout"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One effect as we recorded it."""

    key: str
    state: str
    resource: str


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Our own note, made before a key went out again."""

    key: str
    cause: str


@dataclass(frozen=True, kw_only=True)
class Records:
    """What the engine wrote about one run."""

    effects: Sequence[Effect]
    repeats: Sequence[Repeat]
    timed_out_keys: Collection[str]
    """Keys of the calls whose timeouts are on the timeline."""
    crashes: Collection[str]
    """Causes of the resumes that repaired an interruption."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the comparison found."""

    requests: int
    tickets: int
    repeated_keys: int
    explained: dict[str, int] = field(default_factory=dict)
    """Cause to the number of repeats it explains."""
    unexplained_repeats: list[str] = field(default_factory=list)
    """Keys the desk saw more often than our records explain."""
    duplicate_tickets: int = 0
    """Tickets beyond the first of a key, and beyond the first of a resource."""
    unknown_keys: list[str] = field(default_factory=list)
    """Keys the desk saw and we never recorded an intent for."""
    missing_tickets: list[str] = field(default_factory=list)
    """Keys we hold a result for and the desk has no ticket for."""

    @property
    def is_clean(self) -> bool:
        """True if nothing is unexplained."""
        return not (self.unexplained_repeats or self.duplicate_tickets or self.unknown_keys or self.missing_tickets)


def compare(
    *, requests: Iterable[DeskRequest], tickets: Iterable[DeskTicket], records: Records, others: Collection[str] = ()
) -> Account:
    """Hold the two sides against each other. `others` are keys of other runs in the same desk's log."""
    known = {effect.key for effect in records.effects}
    seen = Counter(request.key for request in requests if request.key not in others)
    ours = [ticket for ticket in tickets if ticket.key not in others]
    repeated = {key: count for key, count in seen.items() if count > 1}
    causes = _causes_by_key(records)
    explained = Counter(cause for key, count in repeated.items() for cause in causes[key][: count - 1])
    opened = {ticket.key for ticket in ours}
    return Account(
        requests=seen.total(),
        tickets=len(ours),
        repeated_keys=len(repeated),
        explained=dict(explained),
        unexplained_repeats=sorted(key for key, count in repeated.items() if len(causes[key]) < count - 1),
        duplicate_tickets=len(ours) - min(len(opened), len({ticket.reference for ticket in ours})),
        unknown_keys=sorted(set(seen) - known),
        missing_tickets=sorted(e.key for e in records.effects if e.state == "succeeded" and e.key not in opened),
    )


def _causes_by_key(records: Records) -> defaultdict[str, list[str]]:
    """The causes that count for each key: a timeout that is on the timeline, or a crash that has a receipt."""
    causes: defaultdict[str, list[str]] = defaultdict(list)
    for repeat in records.repeats:
        is_timeout = repeat.cause == CALL_TIMEOUT and repeat.key in records.timed_out_keys
        if is_timeout or repeat.cause in records.crashes:
            causes[repeat.key].append(repeat.cause)
    return causes

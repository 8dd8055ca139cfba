"""What a queue of the Inbox is. A part of the product registers its queue here; the page knows nothing else of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from durableops.access import Permission
from durableops.console.access import Access

PER_PAGE = 50
COUNT_CAP = 1_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which part of a queue somebody wants to see."""

    access: Access
    tenants: Sequence[int]
    """The tenants in which they may do this kind of work."""
    cursor: str = ""
    """Where the page begins, as an earlier page said it; empty for the oldest."""
    mine: bool = False
    """Only what they have claimed."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One piece of work, as every queue shows it."""

    key: str
    """Names it in addresses; unique in its queue."""
    title: str
    url: str
    """Where it is looked at and decided."""
    since: datetime
    tenant: str
    expires_at: datetime | None = None
    """When a clock decides instead."""
    claimed_by: str = ""
    claimed_at: datetime | None = None
    hot: str = ""
    """Why it is urgent, in two or three words; empty when it is not."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the queue's own row template shows."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some entries, oldest first, and where the next page begins."""

    entries: Sequence[Entry]
    following: str = ""


class Queue(ABC):
    """One kind of work. Subclasses are registered by name, in the order of `position`."""

    name: ClassVar[str]
    """Its address: /inbox/?queue=name."""
    label: ClassVar[str]
    icon: ClassVar[str]
    permission: ClassVar[Permission]
    """Who may do this kind of work; nobody else sees the queue."""
    position: ClassVar[int]
    hot: ClassVar[str] = "warning"
    """The colour of its number while it is not empty."""
    template: ClassVar[str]
    """Draws the cells of one entry between its title and its age: `console/inbox/_NAME.html`."""
    heads: ClassVar[Sequence[str]]
    """The heads of those cells."""
    empty: ClassVar[str]
    """What would be here, and how it gets here, in one or two sentences."""

    @abstractmethod
    def count(self, tenants: Sequence[int]) -> int:
        """How many entries are open in these tenants, counted up to `COUNT_CAP + 1`."""

    @abstractmethod
    def page(self, asked: Asked) -> Page:
        """Up to PER_PAGE entries, oldest first; the cost must not grow with the table."""

    def claim(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        """Note that this person is on it. Raises TransitionRefused that names whoever is, Http404."""
        raise NotImplementedError

    def release(self, key: str, *, access: Access, tenants: Sequence[int]) -> None:
        """Note that nobody is on it any more. Raises TransitionRefused, Http404."""
        raise NotImplementedError

    @property
    def can_be_claimed(self) -> bool:
        """Whether entries of this queue are claimed and released."""
        return type(self).claim is not Queue.claim


_queues: dict[str, Queue] = {}


def register(kind: type[Queue]) -> type[Queue]:
    """Class decorator: the queue appears in the Inbox. Raises ValueError for a second queue of one name."""
    if kind.name in _queues:
        raise ValueError(f"queue {kind.name!r} is registered twice: {type(_queues[kind.name])} and {kind}.")
    _queues[kind.name] = kind()
    return kind


def queue(name: str) -> Queue | None:
    """The queue of this name, whoever asks."""
    return _queues.get(name)


def queues(access: Access) -> list[tuple[Queue, list[int]]]:
    """The queues this person may work on, in order, each with the tenants in which they may."""
    found = []
    for queue in sorted(_queues.values(), key=lambda queue: queue.position):
        tenants = [pk for pk in access.tenant_ids if access.may(queue.permission, pk)]
        if tenants:
            found.append((queue, tenants))
    return found


def shown_count(number: int) -> str:
    """A capped count in words."""
    return f"{COUNT_CAP:,}+" if number > COUNT_CAP else f"{number:,}"

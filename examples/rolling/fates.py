"""What becomes of each run: which states the deploys find them in, and what moves them when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

type Kind = Literal["waiting", "paused", "pages", "doubt", "pending", "busy"]
type Fate = Literal["continues", "migrates", "stops_at_three", "stops_at_one"]
"""Ends under the first version while its workers live; is migrated and ends under the second; is migrated and is in the
middle of the second when the third comes; is in the middle of the first when the third comes."""

ALL: tuple[Fate, ...] = ("continues", "migrates", "stops_at_three", "stops_at_one")
WOKEN_BY_ITSELF: tuple[Fate, ...] = ("migrates", "stops_at_three")
"""Of runs whose worker is stopped, or that wait for the ledger: they go on wherever there is a worker for them."""
SHORT: dict[Kind, int] = {"doubt": 1, "pending": 3, "waiting": 8, "paused": 4, "pages": 4, "busy": 2}
LONG: dict[Kind, int] = {"doubt": 1, "pending": 19, "waiting": 80, "paused": 40, "pages": 40, "busy": 20}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run."""

    name: str
    kind: Kind
    fate: Fate

    @property
    def is_awaiting_go(self) -> bool:
        """Whether an event moves it on."""
        return self.kind in ("waiting", "paused", "pages")


def plans(prefix: str, *, short: bool) -> Iterator[Plan]:
    """Every run; a doubt first, for it holds up the ledger for those whose effects are to be pending."""
    for kind, number in (SHORT if short else LONG).items():
        fates = WOKEN_BY_ITSELF if kind in ("doubt", "pending", "busy") else ALL
        for n in range(number):
            yield Plan(name=f"{prefix}-{kind}-{n}", kind=kind, fate=fates[n % len(fates)])

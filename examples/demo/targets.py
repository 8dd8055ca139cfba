"""Which rows of a file the desk's faults are to strike; any file with two good rows will do."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from examples.batch_import.layout import Item, item_of
from examples.batch_import.reader import Row, records
from examples.batch_import.source import Source

SAMPLED_ITEMS = 5000
"""Beyond these the file is not looked at: the faults then strike early, not never."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Shell patterns for the titles of two tickets."""

    times_out: str | None
    """The call that gets no answer in time, and one on its second try."""
    is_held: str | None
    """The call during whose second try the worker is killed."""


def choose_targets(source: Source) -> Targets:
    """A row after a quarter of the file, and one after three fifths."""
    titles = [item.title for item in _items(source)]
    counts = Counter(titles)
    early = _first_unique(titles[len(titles) // 4 :], counts)
    late = _first_unique(titles[len(titles) * 3 // 5 :], counts)
    return Targets(times_out=early if early != late else None, is_held=late)


def _first_unique(titles: list[str], counts: Counter[str]) -> str | None:
    found = next((title for title in titles if counts[title] == 1), titles[0] if titles else None)
    # `glob.escape` quotes what fnmatch, which the desk matches with, would take for a pattern.
    return None if found is None else glob.escape(found)


def _items(source: Source) -> Iterator[Item]:
    seen = 0
    with source.path.open("rb") as file:
        for row, _ in records(file, source.start, delimiter=source.delimiter):
            item = item_of(row, source.layout) if isinstance(row, Row) else row
            if isinstance(item, Item):
                yield item
                seen += 1
                if seen == SAMPLED_ITEMS:
                    return

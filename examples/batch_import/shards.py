"""Counting the rows of a file and cutting it into parts of about equal size, at row boundaries."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from examples.batch_import.reader import Cursor, records
from examples.batch_import.source import Source


def count_rows(source: Source) -> int:
    """How many rows the file has, good and bad."""
    return sum(1 for _ in _starts(source))


def bounds_of(source: Source, *, rows: int, shards: int) -> list[Cursor]:
    """Where each part begins; the first where the file's rows begin."""
    wanted = {rows * number // shards for number in range(shards)}
    found = [start for number, start in enumerate(_starts(source)) if number in wanted]
    return found or [source.start]


def shard_at(bounds: Sequence[Cursor], line: int) -> int:
    """The number, from 1, of the part that holds a line."""
    return max(1, bisect.bisect_right([start for _, start in bounds], line))


def _starts(source: Source) -> Iterator[Cursor]:
    """Where each row begins, or ended the one before it."""
    start = source.start
    with source.path.open("rb") as file:
        for _, following in records(file, source.start, delimiter=source.delimiter):
            yield start
            start = following

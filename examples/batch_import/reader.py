"""A CSV file as pages of rows, each page found again by a byte position; what the columns mean, layout.py decides.

Memory does not grow with the file. Bad rows are items of their own, with a line number and a reason.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from durableops import Page
from examples.batch_import.lines import MAX_RECORD_BYTES, RecordLines, RecordTooLarge, end_of_line

Cursor = tuple[int, int]
"""(byte position, line number) of a row's beginning; both only grow."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it stands in the file."""

    line: int
    """Where it begins, counted from 1."""
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that cannot be imported."""

    line: int
    reason: str
    reference: str = ""
    """The row's id, where it could be read."""


def read_page(
    path: Path, cursor: Cursor, *, delimiter: str = ",", rows: int, stops: Collection[int] = ()
) -> Page | None:
    """The next rows and rejects from `cursor`, at most `rows` of them, and the cursor behind them; None at the end.

    A page also ends before a line that is among `stops`.
    """
    items: list[Row | Reject] = []
    following = cursor
    with path.open("rb") as file:
        for item, following in records(file, cursor, delimiter=delimiter):
            items.append(item)
            if len(items) == rows or following[1] in stops:
                break
    return Page(items=items, next_cursor=list(following)) if items else None


def records(file: BinaryIO, cursor: Cursor, *, delimiter: str) -> Iterator[tuple[Row | Reject, Cursor]]:
    """Each row or reject from `cursor` on, with the cursor behind it. Empty lines are passed over."""
    position: Cursor | None = cursor
    while position is not None:
        position = yield from _records_until_a_broken_one(file, position, delimiter=delimiter)


def _records_until_a_broken_one(
    file: BinaryIO, cursor: Cursor, *, delimiter: str
) -> Generator[tuple[Row | Reject, Cursor], None, Cursor | None]:
    """Rows as csv reads them; after one that never ends, the position of the line behind its first, else None."""
    lines = RecordLines(file, offset=cursor[0], line=cursor[1])
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        lines.begin_record()
        try:
            fields = next(reader, None)
        except RecordTooLarge:
            reason = f"longer than {MAX_RECORD_BYTES} bytes; is a quote not closed?"
        except csv.Error as error:
            reason = f"not CSV: {error}"
        else:
            if fields is None:
                return None
            if not lines.ran_out:
                if item := _item(lines, fields):
                    yield item, (lines.offset, lines.line)
                continue
            reason = "a quote is not closed before the end of the file"
        # The lines that this row swallowed are read again as rows of their own.
        resume = (end_of_line(file, lines.record_offset), lines.record_line + 1)
        yield Reject(lines.record_line, reason), resume
        return resume


def _item(lines: RecordLines, fields: list[str]) -> Row | Reject | None:
    if lines.undecodable:
        return Reject(lines.record_line, "not UTF-8")
    if not fields or (len(fields) == 1 and not fields[0].strip()):
        return None
    return Row(lines.record_line, tuple(fields))

"""A look at a file before anything starts: can it be read, is it CSV, what are its columns, what is its hash."""

from __future__ import annotations

import csv
import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path

from durableops.errors import InputRefused
from examples.batch_import.layout import Layout, check_header, choose_id, choose_title, named, position_of
from examples.batch_import.lines import BLOCK_BYTES, RecordLines, RecordTooLarge
from examples.batch_import.reader import Cursor, Row, records

BOM = b"\xef\xbb\xbf"
OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
DELIMITERS = ",;\t|"
SAMPLED_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the person who starts an import may say about the columns; empty leaves it to the file."""

    id_column: str = ""
    title_column: str = ""
    required: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that can be imported."""

    path: Path
    delimiter: str
    layout: Layout
    start: Cursor
    """Where the first row behind the header begins."""


def open_source(path: Path, choices: Choices) -> Source:
    """Read the header and decide what the columns mean. Raises InputRefused with a sentence that names the file."""
    try:
        return _open(path, choices)
    except InputRefused as error:
        raise InputRefused(f"{path}: {error.detail}") from None
    except OSError as error:
        raise InputRefused(f"{path} cannot be read: {error.strerror}. Give the path of a CSV file.") from error


def _open(path: Path, choices: Choices) -> Source:
    with path.open("rb") as file:
        head = file.read(BLOCK_BYTES)
        _check_text(head)
        bom = len(BOM) if head.startswith(BOM) else 0
        delimiter = _delimiter_of(head[bom:])
        columns, start = _read_header(RecordLines(file, offset=bom, line=1), delimiter)
        rows = (item for item, _ in records(file, start, delimiter=delimiter) if isinstance(item, Row))
        id_column = choose_id(columns, itertools.islice(rows, SAMPLED_ROWS), wanted=choices.id_column)
    layout = Layout(
        columns=columns,
        id_column=id_column,
        title_column=choose_title(columns, id_column=id_column, wanted=choices.title_column),
        required=tuple(position_of(columns, name) for name in choices.required),
        missing=frozenset({"", *choices.missing}),
    )
    return Source(path=path, delimiter=delimiter, layout=layout, start=start)


def _check_text(head: bytes) -> None:
    if not head.removeprefix(BOM).strip():
        raise InputRefused("the file is empty; wanted a CSV whose first line names the columns.")
    # A stray NUL in one row costs that row; in the first line, or in every other byte, this is no text at all.
    if head.startswith(OTHER_BOMS) or b"\x00" in head.lstrip(b"\r\n").splitlines()[0]:
        raise InputRefused("the file is not UTF-8 text (binary, or UTF-16?); save it as CSV in UTF-8.")


def _delimiter_of(head: bytes) -> str:
    first = head.lstrip(b"\r\n").splitlines()[0].decode(errors="replace")
    return max(DELIMITERS, key=first.count)


def _read_header(lines: RecordLines, delimiter: str) -> tuple[tuple[str, ...], Cursor]:
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        columns = next((row for row in reader if row and (len(row) > 1 or row[0].strip())), [])
    except (RecordTooLarge, csv.Error) as error:
        raise InputRefused("the first line is too long or not CSV; wanted the names of the columns.") from error
    if lines.undecodable:
        raise InputRefused("the first line is not UTF-8; save the file as CSV in UTF-8.")
    check_header(columns)
    return named(columns), (lines.offset, lines.line)


def hash_of(path: Path) -> str:
    """sha256 of a file, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""What the columns of a CSV mean: which one is the id, which the title; a row becomes an item or a reject. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from durableops.errors import InputRefused
from examples.batch_import.reader import Reject, Row

ID_NAMES = ("id", "uuid", "guid", "ident", "identifier", "reference")
ID_NAMES_IF_UNIQUE = ("key", "code", "iata", "number", "no", "ref", "sku", "ticket")
TITLE_NAMES = ("title", "name", "subject", "summary", "label", "description", "headline")
ID_SUFFIX = re.compile(r"(^|[ _-])(id|key|code|number|no|ref)$|[a-z]Id$")
LOOKS_LIKE_DATA = re.compile(
    r"[-+]?\d+[.,]\d+([eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*|\d{1,3}|\d{5,}|-\d+|[^@\s]+@[^@\s]+\.[^@\s]+"
)
"""Cells that no header has: decimals, dates, addresses, and whole numbers unless they could be years."""
WHOLE_ROW = "*"
"""Asked for as the id column: the whole content of a row identifies it."""
ID_AS_TITLE = "*"
"""Asked for as the title column: the id stands in."""
MAX_ID_BYTES = 200
MAX_TITLE_CHARACTERS = 500
ENOUGH_UNIQUE = 0.95
"""A column that is only guessed to be the id must differ in this share of the sampled rows."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The columns of one file by position, as decided before the run began."""

    columns: tuple[str, ...]
    id_column: int | None
    """None: no column identifies a row, so its whole content does."""
    title_column: int | None
    """None: no column is a title, so the id stands in."""
    required: tuple[int, ...] = ()
    """Columns that must not be missing."""
    missing: frozenset[str] = frozenset({""})
    """Texts that mean "nothing here"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One row, ready to become a ticket."""

    line: int
    reference: str
    title: str
    details: dict[str, str]


def check_header(columns: Sequence[str]) -> None:
    """Raise InputRefused if a file's first row cannot be a header."""
    first = ", ".join(columns)[:120]
    wanted = "the first line must name the columns; add one that does"
    if not any(name.strip() for name in columns):
        raise InputRefused(f"the first line names no column; {wanted}.")
    for number, name in enumerate(columns, start=1):
        if LOOKS_LIKE_DATA.fullmatch(name.strip()):
            raise InputRefused(f"there is no header: column {number} of the first line is {name[:40]!r}; {wanted}.")
        if any(ord(character) < 32 or character == "\x7f" for character in name):
            raise InputRefused(f"there is no header: the first line has control characters ({first!r}); {wanted}.")


def named(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns' names, each one once: an empty name becomes its number, a repeated one gets a number behind it."""
    names: list[str] = []
    for number, column in enumerate(columns, start=1):
        name = column.strip() or f"column {number}"
        names.append(f"{name} ({number})" if name in names else name)
    return tuple(names)


def choose_id(columns: Sequence[str], sample: Iterable[Row], *, wanted: str) -> int | None:
    """The id column: the one asked for, else by its usual names, else by a usual ending if its values differ."""
    if wanted == WHOLE_ROW:
        return None
    if wanted:
        return position_of(columns, wanted)
    plain = [name.strip().lower() for name in columns]
    for name in ID_NAMES:
        if plain.count(name) == 1:
            return plain.index(name)
    rows = list(sample)
    likely = [position for position, name in enumerate(plain) if name in ID_NAMES_IF_UNIQUE]
    likely += [position for position, name in enumerate(columns) if ID_SUFFIX.search(name.strip())]
    return next((position for position in likely if _mostly_unique(rows, position)), None)


def choose_title(columns: Sequence[str], *, id_column: int | None, wanted: str) -> int | None:
    """The title column: the one asked for, else by its usual names; None if there is neither."""
    if wanted in ("", ID_AS_TITLE):
        plain = [name.strip().lower() for name in columns]
        found = (plain.index(name) for name in TITLE_NAMES if name in plain and plain.index(name) != id_column)
        return None if wanted else next(found, None)
    return position_of(columns, wanted)


def position_of(columns: Sequence[str], name: str) -> int:
    """Where a named column stands. Raises InputRefused if it is not there exactly once."""
    found = [position for position, column in enumerate(columns) if column.strip() == name.strip()]
    if len(found) == 1:
        return found[0]
    problem = "is not there" if not found else f"is there {len(found)} times"
    raise InputRefused(f"column {name!r} {problem}; the columns are: {', '.join(columns)[:500]}.")


def _mostly_unique(rows: Sequence[Row], position: int) -> bool:
    values = [row.fields[position] for row in rows if position < len(row.fields) and row.fields[position]]
    return bool(values) and len(set(values)) >= ENOUGH_UNIQUE * len(rows)


def item_of(row: Row, layout: Layout) -> Item | Reject:
    """Check one row, and say which ticket it asks for."""
    fields = row.fields
    if len(fields) != len(layout.columns):
        return Reject(row.line, f"{len(fields)} fields; wanted {len(layout.columns)}")
    if any("\x00" in field for field in fields):
        return Reject(row.line, "a NUL character")
    reference = f"row-{digest_of(fields)[:32]}" if layout.id_column is None else fields[layout.id_column].strip()
    title = reference if layout.title_column is None else " ".join(fields[layout.title_column].split())
    problem = (
        _problem_of_reference(reference) or _problem_of_title(title, layout) or _problem_of_required(fields, layout)
    )
    if problem:
        return Reject(row.line, problem, reference[:MAX_ID_BYTES])
    details = {
        name: value
        for position, (name, value) in enumerate(zip(layout.columns, fields, strict=True))
        if position not in (layout.id_column, layout.title_column)
    }
    return Item(line=row.line, reference=reference, title=title, details=details)


def digest_of(fields: Sequence[str]) -> str:
    """sha256 over the fields; the separator cannot be confused with their text."""
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def _problem_of_reference(reference: str) -> str:
    if not reference:
        return "no id"
    if len(reference.encode()) > MAX_ID_BYTES:
        return f"the id is longer than {MAX_ID_BYTES} bytes"
    return "" if reference.isprintable() else "the id has control characters or unusual spaces"


def _problem_of_title(title: str, layout: Layout) -> str:
    if layout.title_column is not None and title in layout.missing:
        return f"no {layout.columns[layout.title_column]}"
    return f"the title is longer than {MAX_TITLE_CHARACTERS} characters" if len(title) > MAX_TITLE_CHARACTERS else ""


def _problem_of_required(fields: Sequence[str], layout: Layout) -> str:
    absent = [layout.columns[position] for position in layout.required if fields[position].strip() in layout.missing]
    return f"no {' and no '.join(absent)}" if absent else ""

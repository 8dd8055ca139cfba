"""A service's SQLite file: one connection writes, any number read; and the log that every service keeps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


def open_for_writing(path: Path, schema: str) -> sqlite3.Connection:
    """The one writing connection. FULL: an accepted request is on the disk before it is answered."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(schema)
    return connection


def finish(connection: sqlite3.Connection, request_id: int, *, outcome: str, status: int | None, at: float) -> None:
    """Record how a request ended."""
    connection.execute(
        "UPDATE requests SET outcome = ?, status = ?, answered_at = ? WHERE id = ?", (outcome, status, at, request_id)
    )


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection; WAL lets it read while the writer writes."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        yield connection


def rows_of(path: Path, statement: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """What a query finds."""
    with reading(path) as connection:
        return [dict(row) for row in connection.execute(statement, values)]


def as_page(table: str, rows: list[dict[str, Any]], *, limit: int) -> dict[str, Any]:
    """Rows and where the next page begins, if this one is full."""
    return {table: rows, "next_after": rows[-1]["id"] if len(rows) == limit and rows else None}

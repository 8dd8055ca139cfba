"""The ledger's SQLite tables and what may be done to them, one function per change; the journal commits."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from examples.ledger_desk.messages import Arrival, entry_as_json
from examples.serving.messages import Answer, json_answer, problem
from examples.serving.storage import finish, reading, rows_of

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at REAL NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    text TEXT NOT NULL,
    fault TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'received',
    status INTEGER,
    answered_at REAL,
    client_gone INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    booked_at REAL NOT NULL,
    request_id INTEGER NOT NULL REFERENCES requests (id),
    account TEXT NOT NULL,
    amount INTEGER NOT NULL,
    text TEXT NOT NULL,
    reverses INTEGER REFERENCES entries (id)
);
CREATE INDEX IF NOT EXISTS entries_by_text ON entries (text);
"""
MAX_FOUND = 100


def forget_unfinished(connection: sqlite3.Connection) -> None:
    """After a crash: a request without an outcome booked nothing, since an entry and its outcome are one commit."""
    connection.execute("UPDATE requests SET outcome = 'lost' WHERE outcome = 'received'")


def receive(connection: sqlite3.Connection, arrival: Arrival, *, fault: str) -> int:
    """Put a request on record and return its number."""
    row = (arrival.received_at, arrival.kind, arrival.key, arrival.text, fault)
    request_id = connection.execute(
        "INSERT INTO requests (received_at, kind, key, text, fault) VALUES (?, ?, ?, ?, ?)", row
    ).lastrowid
    assert request_id is not None
    return request_id


def work(connection: sqlite3.Connection, arrival: Arrival, *, request_id: int, at: float) -> Answer:
    """Book, reverse or look, and close the request: all in the caller's transaction."""
    if arrival.kind == "search":
        outcome, answer = "found", json_answer({"entries": find(connection, arrival.text)})
    elif arrival.kind == "post":
        outcome, answer = "booked", _book(
            connection, account=arrival.account, amount=arrival.amount, text=arrival.text, reverses=None,
            request_id=request_id, at=at,
        )  # fmt: skip
    else:
        outcome, answer = _reverse(connection, arrival, request_id=request_id, at=at)
    finish(connection, request_id, outcome=outcome, status=answer.status, at=at)
    return answer


def find(connection: sqlite3.Connection, text: str) -> list[dict[str, Any]]:
    """Entries with exactly this text, newest first."""
    cursor = connection.execute(
        "SELECT id, account, amount, text, reverses FROM entries WHERE text = ? ORDER BY id DESC LIMIT ?",
        (text, MAX_FOUND),
    )
    names = [column[0] for column in cursor.description]
    return [entry_as_json(dict(zip(names, row, strict=True))) for row in cursor]


def _reverse(connection: sqlite3.Connection, arrival: Arrival, *, request_id: int, at: float) -> tuple[str, Answer]:
    found = connection.execute("SELECT account, amount FROM entries WHERE id = ?", (arrival.entry,)).fetchone()
    if found is None:
        return "unknown", problem(404, f"there is no entry E-{arrival.entry}")
    account, amount = found
    return "reversed", _book(
        connection, account=account, amount=-amount, text=arrival.text, reverses=arrival.entry,
        request_id=request_id, at=at,
    )  # fmt: skip


def _book(
    connection: sqlite3.Connection, *, account: str, amount: int, text: str, reverses: int | None,
    request_id: int, at: float,
) -> Answer:  # fmt: skip
    number = connection.execute(
        "INSERT INTO entries (booked_at, request_id, account, amount, text, reverses) VALUES (?, ?, ?, ?, ?, ?)",
        (at, request_id, account, amount, text, reverses),
    ).lastrowid
    row = {"id": number, "account": account, "amount": amount, "text": text, "reverses": reverses}
    return json_answer(entry_as_json(row), status=201)


def requests_page(path: Path, *, after: int, limit: int) -> list[dict[str, Any]]:
    """The request log, oldest first."""
    return rows_of(path, "SELECT * FROM requests WHERE id > ? ORDER BY id LIMIT ?", (after, limit))


def entries_page(path: Path, *, after: int, limit: int) -> list[dict[str, Any]]:
    """The entries as they are stored, oldest first."""
    return rows_of(path, "SELECT * FROM entries WHERE id > ? ORDER BY id LIMIT ?", (after, limit))


def newest_entries(path: Path, *, limit: int) -> list[dict[str, Any]]:
    """For people, who look for what came last."""
    return rows_of(path, "SELECT * FROM entries ORDER BY id DESC LIMIT ?", (limit,))


def stats(path: Path) -> dict[str, Any]:
    """Totals: requests by outcome, entries, entries beyond the first of their text, and what each account holds."""
    with reading(path) as connection:
        outcomes = dict(connection.execute("SELECT outcome, count(*) FROM requests GROUP BY outcome").fetchall())
        entries, texts = connection.execute("SELECT count(*), count(DISTINCT text) FROM entries").fetchone()
        balances = dict(connection.execute("SELECT account, sum(amount) FROM entries GROUP BY account").fetchall())
    return {
        "requests": sum(outcomes.values()),
        "outcomes": outcomes,
        "entries": entries,
        "entries_beyond_the_first_of_a_text": entries - texts,
        "balances": balances,
    }

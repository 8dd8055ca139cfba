"""The desk's SQLite tables and what may be done to them, one function per change; journal.py commits."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Literal

from examples.serving.messages import Answer, problem
from examples.serving.service import Received
from examples.serving.storage import finish, reading, rows_of
from examples.ticket_desk.messages import Arrival, answer_of_ticket

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    received_at REAL NOT NULL,
    key TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    reference TEXT NOT NULL,
    fault TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'received',
    status INTEGER,
    answered_at REAL,
    client_gone INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS requests_by_key ON requests (key);
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY,
    body_hash TEXT NOT NULL,
    claimed_at REAL NOT NULL,
    status INTEGER,
    body TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tickets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at REAL NOT NULL,
    key TEXT NOT NULL,
    request_id INTEGER NOT NULL REFERENCES requests (id),
    reference TEXT NOT NULL,
    title TEXT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS tickets_by_reference ON tickets (reference);
CREATE INDEX IF NOT EXISTS tickets_by_key ON tickets (key);
"""

Standing = Literal["fresh", "replayed", "conflict", "busy"]
"""What a key is worth: never seen, answered before, seen with another body, or still being worked on."""


def forget_unfinished(connection: sqlite3.Connection) -> None:
    """After a crash: a claimed key without an answer did nothing, since a ticket and its answer are one commit."""
    connection.execute("DELETE FROM keys WHERE status IS NULL")
    connection.execute("UPDATE requests SET outcome = 'lost' WHERE outcome = 'received'")


def receive(
    connection: sqlite3.Connection, arrival: Arrival, *, fault: str, claim: bool, key_retention_seconds: float
) -> Received:
    """Put a request on record and, if `claim`, take its key."""
    row = (arrival.received_at, arrival.key, arrival.body_hash, arrival.reference, fault)
    request_id = connection.execute(
        "INSERT INTO requests (received_at, key, body_hash, reference, fault) VALUES (?, ?, ?, ?, ?)", row
    ).lastrowid
    assert request_id is not None
    if not (claim and arrival.key):
        return Received(request_id=request_id)
    standing, answer = _claim_key(connection, arrival, oldest=arrival.received_at - key_retention_seconds)
    if answer is not None:
        finish(connection, request_id, outcome=standing, status=answer.status, at=arrival.received_at)
    return Received(request_id=request_id, answer=answer)


def _claim_key(connection: sqlite3.Connection, arrival: Arrival, *, oldest: float) -> tuple[Standing, Answer | None]:
    known = connection.execute(
        "SELECT body_hash, status, body, claimed_at FROM keys WHERE key = ?", (arrival.key,)
    ).fetchone()
    if known is None or known[3] < oldest:
        connection.execute(
            "INSERT OR REPLACE INTO keys (key, body_hash, claimed_at) VALUES (?, ?, ?)",
            (arrival.key, arrival.body_hash, arrival.received_at),
        )
        return "fresh", None
    body_hash, status, body, _ = known
    if body_hash != arrival.body_hash:
        return "conflict", problem(422, "this key was used with another body; use a new key for a new request")
    if status is None:
        return "busy", problem(409, "a request with this key is in progress; ask again later", {"Retry-After": "1"})
    return "replayed", Answer(status=status, body=body, headers={"Idempotency-Replayed": "true"})


def open_ticket(connection: sqlite3.Connection, arrival: Arrival, *, request_id: int, at: float) -> Answer:
    """Create the ticket, store its answer under the key, and close the request: all in the caller's transaction."""
    ticket_id = connection.execute(
        "INSERT INTO tickets (created_at, key, request_id, reference, title, details) VALUES (?, ?, ?, ?, ?, ?)",
        (at, arrival.key, request_id, arrival.reference, arrival.title, json.dumps(arrival.details)),
    ).lastrowid
    assert ticket_id is not None
    answer = answer_of_ticket(ticket_id, arrival)
    connection.execute("UPDATE keys SET status = ?, body = ? WHERE key = ?", (answer.status, answer.body, arrival.key))
    finish(connection, request_id, outcome="created", status=answer.status, at=at)
    return answer


def page_of(path: Path, table: Literal["requests", "tickets"], *, after: int, limit: int) -> list[dict[str, Any]]:
    """Rows with an id above `after`, oldest first."""
    statement = {
        "requests": "SELECT * FROM requests WHERE id > ? ORDER BY id LIMIT ?",
        "tickets": "SELECT * FROM tickets WHERE id > ? ORDER BY id LIMIT ?",
    }[table]
    return rows_of(path, statement, (after, limit))


def stats(path: Path) -> dict[str, Any]:
    """Totals: requests by outcome, tickets, keys seen more than once, tickets beyond the first of their kind."""
    with reading(path) as connection:
        outcomes = dict(connection.execute("SELECT outcome, count(*) FROM requests GROUP BY outcome").fetchall())
        tickets, keyed, keys, references = connection.execute(
            "SELECT count(*), count(nullif(key, '')), count(DISTINCT nullif(key, '')), count(DISTINCT reference)"
            " FROM tickets"
        ).fetchone()
        repeated = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM requests WHERE key <> '' GROUP BY key HAVING count(*) > 1)"
        ).fetchone()[0]
    return {
        "requests": sum(outcomes.values()),
        "outcomes": outcomes,
        "tickets": tickets,
        "repeated_keys": repeated,
        "tickets_beyond_the_first_of_a_key": keyed - keys,
        "tickets_beyond_the_first_of_a_reference": tickets - references,
    }

"""Copies of one run that waits, written by the server itself: what would take the engine minutes takes seconds."""

from __future__ import annotations

from uuid import UUID

import psycopg

_OF = "md5(%(run)s::text || n)::uuid"
# Each row as it is, with another run's id and whatever has to differ.
_ROWS = """
INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object({key}, {of}) || {more})).*
FROM {table} t, generate_series(1, %(copies)s::int) n WHERE t.{column} = %(run)s"""
_ID = "jsonb_build_object('id', nextval(pg_get_serial_sequence('{table}', 'id')))"
_KEYS = "jsonb_build_object('slot', sha256(convert_to(t.id || ' ' || n, 'UTF8')), 'key', md5(t.id || ' ' || n))"
_TABLES = (
    ("runs_run", "id", "'{{}}'::jsonb"),
    ("runs_checkpoint", "run_id", "'{{}}'::jsonb"),
    ("runs_event", "run_id", _ID),
    ("runs_decision", "run_id", _ID),
    ("runs_effect", "run_id", f"{_ID} || {_KEYS}"),
    ("runs_wait", "run_id", _ID),
)
_APPROVALS = """
INSERT INTO runs_approval SELECT (jsonb_populate_record(a, jsonb_build_object('wait_id', w.id, 'run_id', w.run_id))).*
FROM runs_approval a JOIN runs_wait o ON o.id = a.wait_id JOIN runs_wait w ON w.name = o.name AND w.run_id <> o.run_id
WHERE o.run_id = %(run)s"""


def copy(connection: psycopg.Connection, run_id: UUID, copies: int) -> list[UUID]:
    """Make so many copies of a run that nobody holds. Returns their ids."""
    params = {"run": run_id, "copies": copies}
    for table, column, more in _TABLES:
        text = _ROWS.format(table=table, key=f"'{column}'", of=_OF, more=more.format(table=table), column=column)
        connection.execute(text.encode(), params)
    connection.execute(_APPROVALS.encode(), params)
    rows = connection.execute(f"SELECT {_OF} FROM generate_series(1, %(copies)s::int) n".encode(), params).fetchall()
    return [row[0] for row in rows]

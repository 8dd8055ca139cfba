"""Rows of files that no artifact names: noted before the first byte is written, gone with the commit that names it."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from runs.transitions import Cursor

_NOTE = """
INSERT INTO runs_loose_file (path, tenant_id, run_id, worker_id, abandon_after, doomed, at)
VALUES (%s, %s, %s, %s, now() + %s * interval '1 second', false, now())"""
_DOOM = """
INSERT INTO runs_loose_file (path, tenant_id, run_id, doomed, at)
SELECT x.path, x.tenant, x.run, true, now() FROM unnest(%s::text[], %s::int[], %s::uuid[]) AS x(path, tenant, run)
ON CONFLICT (path) DO UPDATE SET doomed = true"""


def note(
    cursor: Cursor,
    path: str,
    *,
    tenant_id: int,
    run_id: UUID,
    worker_id: UUID | None = None,
    abandon_seconds: float | None = None,
) -> None:
    """Say that a file of this name is about to be written: by a worker that holds the run, or by somebody outside
    who has so many seconds for it."""
    cursor.execute(_NOTE, [path, tenant_id, run_id, worker_id, abandon_seconds])


def claim(cursor: Cursor, path: str) -> bool:
    """Take a file that came from outside, in the transaction that names it. False when it was given up already."""
    cursor.execute("DELETE FROM runs_loose_file WHERE path = %s AND NOT doomed RETURNING id", [path])
    return cursor.fetchone() is not None


def doom(cursor: Cursor, files: Iterable[tuple[str, int, UUID]]) -> None:
    """Say that files are to be removed, in the transaction that takes their names away: (path, tenant, run)."""
    found = list(files)
    if found:
        cursor.execute(_DOOM, [list(column) for column in zip(*found, strict=True)])

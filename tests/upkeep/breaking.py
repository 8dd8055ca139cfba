"""Breaks the record by hand, every guard switched off, and takes it back. The owner of the tables may, no superuser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import connection, transaction

from durableops.upkeep.invariants import report
from durableops.upkeep.invariants.check import Check

GUARDS_OFF = """
DO $$ DECLARE t record; BEGIN
    FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'runs\\_%' LOOP
        EXECUTE format('ALTER TABLE %I DISABLE TRIGGER USER', t.relname);
    END LOOP;
    FOR t IN SELECT c.relname, k.conname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
             WHERE c.relname LIKE 'runs\\_%' AND k.contype = 'c' LOOP
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t.relname, t.conname);
    END LOOP;
END $$"""


class _Undo(Exception):
    """Takes breaks back."""


@contextmanager
def guards_off() -> Iterator[None]:
    """Let everything be broken by hand; what is still broken at the end is taken back."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(GUARDS_OFF)
            yield
            raise _Undo
    except _Undo:
        return


def broken_by(
    statements: str, checks: Sequence[Check], *, grace_seconds: float = report.DEFAULT_GRACE_SECONDS
) -> set[str]:
    """With the guards off: the names of the checks that fail after these statements, which are then taken back."""
    found: set[str] = set()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements.split(";"):
                cursor.execute(statement.replace("%", "%%") if "%" in statement else statement)
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            params = {"grace": grace_seconds, "runs": report.DEFAULT_RUNS, "patience": 10.0}
            found = {c.name for c in checks if not report.make(cursor, c, params).passed}  # type: ignore[arg-type]
            raise _Undo
    except _Undo:
        return found

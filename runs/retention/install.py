"""Putting the functions of retention into the database, after each `migrate`, as the role that owns the tables.

Not by a migration: what may hold a run grows with the product, and one present text is easier to judge than a history
of replaced ones. All of them are replaced together, and only the application's role may call them.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import sql

from runs.retention import cleaning, verdicts, walking

FUNCTIONS = {
    "runs_retention_window(integer, text, text)": verdicts.WINDOW,
    "runs_reopen_until(uuid, text, timestamptz, bigint)": verdicts.REOPEN_UNTIL,
    "runs_retention_verdicts(uuid[], timestamptz)": verdicts.VERDICTS,
    "runs_retention_counts(uuid[], jsonb)": cleaning.COUNTS,
    "runs_retention_step(timestamptz, boolean, timestamptz, uuid, integer, integer, text)": cleaning.STEP,
    "runs_retention_inbound(timestamptz, integer, text)": walking.INBOUND,
    "runs_retention_audit(timestamptz, integer, text)": walking.AUDIT,
}
NEWEST_TABLE = "runs_retention_rule"


def install(*, using: str, **kwargs: Any) -> None:
    """Receive `post_migrate` of this app. `flush` sends the signal too, without a plan: the functions were kept."""
    if "plan" not in kwargs:
        return
    connection = connections[using]
    with connection.cursor() as cursor:
        if NEWEST_TABLE not in {table.name for table in connection.introspection.get_table_list(cursor)}:
            return  # migrated back to before there was retention
        for signature, text in FUNCTIONS.items():
            cursor.execute(text)
            cursor.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
            if role := settings.DATABASE_APPLICATION_ROLE:
                grant = sql.SQL(f"GRANT EXECUTE ON FUNCTION {signature} TO {{}}").format(sql.Identifier(role))
                cursor.execute(grant.as_string(cursor.connection))

"""What the application's database role may do to the tables: everything, except rewriting history.

Granted after each `migrate`, by the role that owns the tables. With one role for both, there is nothing to grant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.db import connections
from psycopg import sql

# Rows here are written once. Retention, which does remove some, goes through functions that run as the owner.
APPEND_ONLY = (
    "runs_audit_entry",
    "runs_checkpoint",
    "runs_cleanup",
    "runs_event",
    "runs_lineage",
    "runs_made_plan",
    "runs_retention_rule",
)
# The application reads which migrations ran and never says so itself.
READ_ONLY = ("django_migrations",)


def grant_to_application(*, using: str, **kwargs: Any) -> None:
    """Receive `post_migrate` of this app. `flush` sends the signal too, without a plan: tables and grants were kept."""
    role = settings.DATABASE_APPLICATION_ROLE
    if not role or "plan" not in kwargs:
        return
    connection = connections[using]
    with connection.cursor() as cursor:
        present = {table.name for table in connection.introspection.get_table_list(cursor)}
        for statement in statements(role, present):
            cursor.execute(statement.as_string(cursor.connection))


def statements(role: str, tables: set[str]) -> Iterator[sql.Composed]:
    """Yield the grants for a role, given the tables there are."""
    name = sql.Identifier(role)
    yield sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(name)
    yield sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}").format(name)
    yield sql.SQL("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}").format(name)
    for table in sorted(tables.intersection(APPEND_ONLY)):
        yield sql.SQL("REVOKE UPDATE, DELETE, TRUNCATE ON {} FROM {}").format(sql.Identifier(table), name)
    for table in sorted(tables.intersection(READ_ONLY)):
        yield sql.SQL("REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {} FROM {}").format(sql.Identifier(table), name)

"""The two roles and the database in the embedded cluster. What roles may do to tables: runs/grants.py."""

from __future__ import annotations

import time

import psycopg
from psycopg import sql

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.postgres import Postgres

OWNER = "durableops_owner"
APPLICATION = "durableops_app"
DATABASE = "durableops"

# What a role may do besides touching its tables: look at the server's state, end a stray session, ask for a checkpoint.
OWNER_MEMBERSHIPS = ("pg_monitor", "pg_signal_backend", "pg_checkpoint")
APPLICATION_MEMBERSHIPS = ("pg_monitor",)


def ensure_roles(postgres: Postgres, *, seconds: float = 30.0) -> None:
    """Create what is missing of the owner, the application's role and the database."""
    with _connect(postgres, seconds=seconds) as connection:
        _ensure_role(connection, OWNER, options="LOGIN CREATEDB", memberships=OWNER_MEMBERSHIPS)
        _ensure_role(connection, APPLICATION, options="LOGIN", memberships=APPLICATION_MEMBERSHIPS)
        if not _exists(connection, "SELECT 1 FROM pg_database WHERE datname = %s", DATABASE):
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(OWNER))
            )


def _connect(postgres: Postgres, *, seconds: float) -> psycopg.Connection:
    """Connect as the superuser, waiting while the server recovers from a crash."""
    end = time.monotonic() + seconds
    while True:
        try:
            return psycopg.connect(postgres.url("postgres", "postgres"), autocommit=True)
        except psycopg.OperationalError as refused:
            if time.monotonic() > end:
                raise EmbeddedError(f"PostgreSQL runs but lets nobody in: {refused} (see {postgres.log})") from refused
            time.sleep(0.05)


def _ensure_role(connection: psycopg.Connection, name: str, *, options: str, memberships: tuple[str, ...]) -> None:
    if not _exists(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", name):
        connection.execute(sql.SQL("CREATE ROLE {} " + options).format(sql.Identifier(name)))
    for group in memberships:
        # Some of these roles are younger than the oldest server we support.
        if _exists(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", group):
            connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(name)))


def _exists(connection: psycopg.Connection, query: str, name: str) -> bool:
    return connection.execute(query, (name,)).fetchone() is not None

"""The application's role works with every table and cannot rewrite history. Asked of the database itself."""

from __future__ import annotations

import psycopg
import pytest
from django.apps import apps

from runs.grants import APPEND_ONLY

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def may(url: str, table: str) -> set[str]:
    """Return what the role of `url` may do to a table."""
    query = "SELECT p FROM unnest(%s::text[]) p WHERE has_table_privilege(%s, p)"
    with psycopg.connect(url) as connection:
        return {
            row[0] for row in connection.execute(query, (["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"], table))
        }


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_application_adds_to_history_and_cannot_rewrite_it(app_role_url: str, table: str):
    assert may(app_role_url, table) == {"SELECT", "INSERT"}


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize(
    "statement", ["DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}", "ALTER TABLE {} DISABLE TRIGGER ALL"]
)
def test_database_refuses_the_application(app_role_url: str, table: str, statement: str):
    with psycopg.connect(app_role_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.format(table))


def test_application_has_the_four_rights_on_every_other_table(app_role_url: str):
    tables = {model._meta.db_table for model in apps.get_models() if model._meta.managed} - set(APPEND_ONLY)
    assert {table: may(app_role_url, table) for table in tables} == {
        table: {"SELECT", "INSERT", "UPDATE", "DELETE"} for table in tables
    }


def test_application_does_not_write_the_list_of_migrations(app_role_url: str):
    assert may(app_role_url, "django_migrations") == {"SELECT"}


def test_append_only_tables_exist():
    assert set(APPEND_ONLY) <= {model._meta.db_table for model in apps.get_models()}

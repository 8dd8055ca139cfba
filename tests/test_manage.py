"""The command line tells what is in its way in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

CHECKOUT = Path(__file__).resolve().parent.parent


def manage(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.django_db(transaction=True)
def test_unreachable_database_is_named_with_the_remedy(process_environment: dict[str, str], tmp_path: Path):
    process_environment["DATABASE_URL"] = f"postgresql://app@/durableops?host={tmp_path}"
    process_environment["DATABASE_OWNER_URL"] = ""
    refused = manage("migrate", environment=process_environment)
    assert refused.returncode == 1
    assert "Start it (`make services`) or correct DATABASE_URL." in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.django_db(transaction=True)
def test_migrate_gives_up_when_a_table_is_held(process_environment: dict[str, str], database_url: str):
    with psycopg.connect(database_url) as holder:
        holder.execute(sql.SQL("LOCK TABLE django_migrations IN ACCESS EXCLUSIVE MODE"))
        refused = manage("migrate", environment=process_environment)
    assert refused.returncode == 1
    assert "another session holds a table" in refused.stderr


@pytest.mark.django_db(transaction=True)
def test_migrate_runs_as_the_owner_and_changes_nothing_twice(process_environment: dict[str, str]):
    done = manage("migrate", environment=process_environment)
    assert done.returncode == 0, done.stderr
    assert "No migrations to apply." in done.stdout

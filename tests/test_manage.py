"""The command line tells what is in its way in one sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

CHECKOUT = Path(__file__).resolve().parent.parent
MISTAKEN = """from durableops import State, step, workflow

class Facts(State):
    number: int = 0

@workflow(name="twice", version=1, state=Facts)
class One:
    @step
    def only(run):
        run.state.number = 1


@workflow(name="twice", version=1, state=Facts)
class Other:
    @step
    def only(run):
        run.state.number = 2
"""


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


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", [["worker"], ["upkeep"], ["start", "twice"]])
def test_mistake_in_a_definition_is_one_sentence_with_file_and_line(
    command: list[str], process_environment: dict[str, str], tmp_path: Path
):
    app = tmp_path / "mistaken"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "workflows.py").write_text(MISTAKEN, encoding="utf-8")
    process_environment |= {"PYTHONPATH": str(tmp_path), "DURABLEOPS_APPS": "mistaken"}
    refused = manage(*command, environment=process_environment)
    assert refused.returncode == 1
    assert refused.stderr.startswith("definition: ")
    assert f"{app / 'workflows.py'}:13" in refused.stderr
    assert f"{app / 'workflows.py'}:6" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["no_such_app", "no_such.app"])
def test_app_that_is_not_there_is_named(name: str, process_environment: dict[str, str]):
    refused = manage("worker", environment=process_environment | {"DURABLEOPS_APPS": name})
    assert refused.returncode == 1
    assert "DURABLEOPS_APPS names" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", ["worker", "upkeep"])
def test_process_says_that_it_runs_and_ctrl_c_ends_it_without_a_traceback(
    command: str, process_environment: dict[str, str]
):
    started = [sys.executable, "manage.py", command]
    with subprocess.Popen(
        started, cwd=CHECKOUT, env=process_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        # Warnings of the system checks may come first, where there is only one database role.
        said_so = any(f"{command} runs" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=30)
        finally:
            process.kill()  # one that does not listen must not keep the others waiting
    assert said_so
    assert process.returncode == 0
    assert said[0] == ""
    assert "Traceback" not in said[1]

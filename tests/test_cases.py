"""The map of known failures, tests/cases.toml: each case has tests that exist, or names the topic it waits for."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
CASES: dict[str, dict[str, Any]] = tomllib.loads((CHECKOUT / "tests/cases.toml").read_text(encoding="utf-8"))
AREAS = {
    "API", "console", "deploy", "engine", "idempotency", "quotas", "retention", "security", "timeouts", "versioning",
}  # fmt: skip
REAL = ("tests/acceptance/", "tests/concurrency/", "tests/drills/", "tests/embedded/", "tests/api/test_at_once.py")
"""Where tests use real processes, or two real connections."""
FIELDS = {"title", "area", "severity", "tests", "later"}
MARKER = re.compile(r"#.*\b(C\d{3})\b")


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the test functions that a file defines; none if there is no such file."""
    path = CHECKOUT / file
    if not path.is_file():
        return frozenset()
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(n.name for n in nodes if isinstance(n, functions) and n.name.startswith("test_"))


def exists(node_id: str) -> bool:
    file, _, name = node_id.partition("::")
    return name in functions_of(file)


@pytest.mark.parametrize("case", sorted(CASES))
def test_case_names_tests_that_exist_or_what_it_waits_for(case: str):
    told = CASES[case]
    assert re.fullmatch(r"C\d{3}", case)
    assert told.keys() <= FIELDS
    assert told["title"].strip()
    assert told["area"] in AREAS
    assert told["severity"] in {"S1", "S2", "S3"}
    assert told.get("tests") or told.get("later"), "it has neither tests nor a topic it waits for"
    assert [t for t in told.get("tests", []) if not exists(t)] == [], "these tests do not exist"
    assert len(set(told.get("tests", []))) == len(told.get("tests", []))


@pytest.mark.parametrize("case", sorted(c for c, told in CASES.items() if told["severity"] == "S1"))
def test_worst_cases_are_proved_on_real_processes_or_connections(case: str):
    """An S1 case whose tests are all of one process still waits for something, and says for what."""
    told = CASES[case]
    assert told.get("later") or any(t.startswith(REAL) for t in told["tests"])


def test_cases_that_tests_name_are_on_the_map():
    named: dict[str, set[str]] = {}
    for file in sorted((CHECKOUT / "tests").rglob("*.py")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if MARKER.search(line):
                for case in re.findall(r"\bC\d{3}\b", line):
                    named.setdefault(case, set()).add(str(file.relative_to(CHECKOUT)))
    assert set(named) <= set(CASES)
    untested = {case: files for case, files in named.items() if not CASES[case].get("tests")}
    assert untested == {}, "tests name these cases, and the map does not name the tests"


def test_every_area_that_exists_is_on_the_map():
    assert {told["area"] for told in CASES.values()} == AREAS
    assert len(CASES) > 100

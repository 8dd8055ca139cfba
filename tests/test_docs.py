"""The documents: code in them compiles, workflows load, commands, tests and files that are named exist."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import generate
from durableops.authoring import registry

CHECKOUT = Path(__file__).resolve().parent.parent
DOCUMENTS = [CHECKOUT / "README.md", CHECKOUT / "CHANGELOG.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shown(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def blocks() -> Iterator[tuple[str, str]]:
    """Each Python block, padded so that errors name the document's own lines."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start(1))
            yield f"{shown(path)}:{line + 1}", "\n" * line + found.group(1)


BLOCKS = dict(blocks())


@cache
def names_of_tests() -> frozenset[str]:
    files = (path.read_text(encoding="utf-8") for path in (CHECKOUT / "tests").rglob("test_*.py"))
    return frozenset(name for text in files for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("place", BLOCKS)
def test_python_in_documents_is_python(place: str):
    compile(BLOCKS[place], place.partition(":")[0], "exec")


@pytest.mark.parametrize("place", [place for place, code in BLOCKS.items() if "@workflow" in code])
def test_workflow_in_documents_loads_as_written(place: str, tmp_path: Path):
    # From a file: the look for calls without a resource reads the source.
    path = tmp_path / "document.py"
    path.write_text(BLOCKS[place], encoding="utf-8")
    module = types.ModuleType("document")
    module.__file__ = str(path)
    sys.modules["document"] = module
    try:
        with registry.isolated() as known:
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
            known.check()
            assert known.workflows()
    finally:
        del sys.modules["document"]


def test_lifecycle_is_what_the_table_of_transitions_says():
    text = generate.LIFECYCLE.read_text(encoding="utf-8")
    assert generate.with_generated(text) == text, "run `python -m docs.generate` and commit docs/lifecycle.md"


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_links_lead_to_files(path: Path):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_tests_that_are_named_exist(path: Path):
    named = set(re.findall(r"`(?:[\w/]+\.py::)?(test_\w+)`", path.read_text(encoding="utf-8")))
    assert sorted(named - names_of_tests()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_commands_that_are_named_exist(path: Path):
    text = path.read_text(encoding="utf-8")
    ours = {command.stem for command in (CHECKOUT / "durableops" / "management" / "commands").glob("[a-z]*.py")}
    known = ours | {"migrate", "check", "createsuperuser", "collectstatic", "shell"}
    targets = set(re.findall(r"^([a-z]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert sorted(set(re.findall(r"manage\.py ([a-z_]+)", text)) - known) == []
    assert sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) - targets) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_paths_of_code_that_are_named_exist(path: Path):
    named = re.findall(
        r"`((?:runs|durableops|examples|tests|deploy|docs|benchmarks)/[\w./-]+)`", path.read_text("utf-8")
    )
    assert sorted({name for name in named if not (CHECKOUT / name).exists()}) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_settings_that_are_named_are_in_the_table_of_settings(path: Path):
    table = (CHECKOUT / "docs" / "settings.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(DURABLEOPS_[A-Z_]+)`", path.read_text(encoding="utf-8")))
    assert sorted(name for name in named if f"`{name}`" not in table) == []

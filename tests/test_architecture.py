"""What holds for all code: import contracts, sizes, and that every module says what it is for."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = ("durableops", "runs", "examples", "benchmarks", "deploy")
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
LONGEST_USUAL_FUNCTION = 30


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((CHECKOUT / package).rglob("*.py")):
            if "migrations" not in path.parts and path.read_text(encoding="utf-8").strip():
                yield path


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{shown(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def shown(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def test_import_contracts_are_kept():
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_authoring_is_importable_without_django():
    code = "import sys, durableops; print([m for m in ('django', 'rq', 'redis', 'psycopg') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_what_lives_in_it():
    assert [shown(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_file_is_longer_than_the_cap():
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_longer_than_the_cap_and_most_are_short():
    lengths = dict(pair for path in modules() for pair in functions(path))
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}
    ninetieth = sorted(lengths.values())[len(lengths) * 9 // 10]
    assert ninetieth <= LONGEST_USUAL_FUNCTION


def test_migrations_are_named_for_what_they_do():
    names = [path.stem for path in (CHECKOUT / "runs" / "migrations").glob("0*.py")]
    assert names
    assert [name for name in names if "_auto_" in name] == []

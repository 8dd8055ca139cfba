"""The set-up: which interpreter it takes, when it does nothing, and what it says when something is missing."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
SCRIPT = CHECKOUT / "deploy" / "bootstrap.py"


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module whose checkout is an empty folder."""
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("PYTHON", raising=False)
    lock = tmp_path / "requirements.lock"
    lock.write_text("# nothing to install\n")
    for name, value in {
        "LOCK_FILE": lock,
        "VENV": tmp_path / ".venv",
        "HOME": tmp_path / ".durableops",
        "STAMP": tmp_path / ".venv" / "durableops-stamp",
        "MANAGED": (),
    }.items():
        monkeypatch.setattr(module, name, value)
    return module


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_script_can_be_read_by_python_3_8():
    ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_script_imports_only_the_standard_library():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)


def test_shim_that_fails_is_passed_over_for_one_that_runs(bootstrap, tmp_path, monkeypatch):
    program(tmp_path / "shims" / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    good = program(tmp_path / "bin" / "python3.12", "echo 3.12.9")
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "old" / "python3", "echo 3.9.2")))
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}{os.pathsep}{tmp_path / 'bin'}")
    assert bootstrap.best_interpreter(None) == (str(good), (3, 12, 9))


def test_newest_interpreter_that_fits_is_taken_from_a_version_manager(bootstrap, tmp_path, monkeypatch):
    for version in ("3.11.7", "3.12.1", "3.13.0", "3.99.0"):
        program(tmp_path / "managed" / version / "bin" / "python3", f"echo {version}")
    monkeypatch.setattr(bootstrap, "MANAGED", ((str(tmp_path / "managed"), "3.*/bin/python3"),))
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setenv("PATH", "")
    assert bootstrap.best_interpreter(None).version == (3, 13, 0)


def test_folder_of_another_users_version_manager_is_passed_over(bootstrap, tmp_path, monkeypatch):
    mine = program(tmp_path / "managed" / "3.12.1" / "bin" / "python3", "echo 3.12.1")
    theirs, glob = tmp_path / "theirs", Path.glob

    def refusing(folder, pattern):
        if folder == theirs:
            raise PermissionError(13, "Permission denied", str(folder))
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", refusing)
    managed = ((str(theirs), "3.*/bin/python3"), (str(mine.parents[2]), "3.*/bin/python3"))
    monkeypatch.setattr(bootstrap, "MANAGED", managed)
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setenv("PATH", "")
    assert bootstrap.best_interpreter(None) == (str(mine), (3, 12, 1))


def test_interpreter_named_by_the_user_wins_over_newer_ones(bootstrap, tmp_path, monkeypatch):
    named = program(tmp_path / "mine" / "python", "echo 3.12.1")
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python3", "echo 3.13.0")))
    monkeypatch.setenv("PYTHON", str(named))
    assert bootstrap.best_interpreter(None) == (str(named), (3, 12, 1))


def test_without_any_interpreter_uv_fetches_one_and_else_one_sentence_says_so(bootstrap, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setenv("PATH", "")
    assert bootstrap.best_interpreter("/usr/bin/uv") is None
    with pytest.raises(bootstrap.Missing, match=r"Python 3\.12 or newer is needed"):
        bootstrap.best_interpreter(None)


def test_environment_is_made_once_and_again_when_the_lock_changes(bootstrap):
    installed = []

    def install() -> None:
        installed.append(1)
        bootstrap.STAMP.write_text(bootstrap.fingerprint())

    bootstrap.install = install
    program(bootstrap.VENV / "bin" / "python", "exit 0")
    bootstrap.main()
    bootstrap.main()
    assert len(installed) == 1
    bootstrap.LOCK_FILE.write_text("# something else\n")
    bootstrap.main()
    assert len(installed) == 2


def test_copied_environment_is_not_taken_for_our_own(bootstrap, monkeypatch, tmp_path):
    program(bootstrap.VENV / "bin" / "python", "exit 0")
    bootstrap.STAMP.write_text(bootstrap.fingerprint())
    assert bootstrap.is_up_to_date()
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / "elsewhere" / ".venv")
    assert bootstrap.STAMP.read_text() != bootstrap.fingerprint()


def test_checkout_is_marked_as_development_once(bootstrap):
    bootstrap.HOME.mkdir()
    bootstrap.mark_as_development()
    (bootstrap.HOME / "env").write_text("DURABLEOPS_ENV=production\n")
    bootstrap.mark_as_development()
    assert (bootstrap.HOME / "env").read_text() == "DURABLEOPS_ENV=production\n"


def test_failing_installation_is_a_sentence_not_a_traceback(bootstrap):
    with pytest.raises(bootstrap.Missing, match=r"installing the packages failed\. Check"):
        bootstrap.run(["false"], doing="installing the packages", remedy=bootstrap.NETWORK)


def test_make_without_any_python_says_what_to_install(tmp_path):
    for name in ("make", "sh"):
        (tmp_path / name).symlink_to(next(Path(p, name) for p in ("/usr/bin", "/bin") if Path(p, name).exists()))
    makefile = tmp_path / "Makefile"
    makefile.write_text((CHECKOUT / "Makefile").read_text().replace("/usr/bin/python3", ""))
    done = subprocess.run(
        [tmp_path / "make", "setup"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "no Python was found: install Python 3.12 or newer" in done.stderr


def test_lock_file_is_hashed_and_names_no_registry():
    text = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index-url" not in text
    blocks = [block for block in text.split("\n") if "==" in block]
    assert len(blocks) > 40
    assert all(block.rstrip().endswith("\\") for block in blocks)

"""As whom PostgreSQL runs: never root, whoever starts it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys

import pytest

from durableops.embedded import identity
from durableops.embedded.errors import EmbeddedError
from durableops.embedded.identity import Identity, choose_identity

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="asks what root can do")


def test_ordinary_user_runs_it_as_himself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_identity() == Identity(kind="self")


def test_root_without_namespaces_falls_back_to_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_namespaces_work", lambda: False)
    assert choose_identity() == Identity(kind="nobody")


def test_root_without_any_way_is_told_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_namespaces_work", lambda: False)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {}[name])
    with pytest.raises(EmbeddedError, match="Run as an ordinary user"):
        choose_identity()


@as_root
@pytest.mark.parametrize("kind", ["namespace", "nobody"])
def test_child_is_not_root(kind: identity.Kind):
    child = [sys.executable, "-c", "import os; print(os.geteuid() != 0)"]
    if kind == "nobody":
        child = ["sh", "-c", '[ "$(id -u)" -ne 0 ] && echo True']
    done = subprocess.run(
        child, preexec_fn=Identity(kind=kind).before_exec, capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.stdout.strip() == "True", done.stderr

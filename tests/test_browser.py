"""The finder of browsers: its order, and how loudly it says that there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import browser


def chromium(path: Path, *, runs: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {0 if runs else 1}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.fixture
def unfetchable(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "fetch", lambda: None)


def test_named_browser_comes_first(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    chromium(elsewhere / "chromium")
    named = chromium(elsewhere / "mine" / "chrome")
    monkeypatch.setenv("CHROMIUM", str(named))
    assert browser.find() == str(named)


def test_browser_that_does_not_run_is_passed_over(elsewhere: Path):
    chromium(elsewhere / "chromium", runs=False)
    fetched = chromium(elsewhere / "playwright" / "chromium-1" / "chrome-linux" / "chrome")
    assert browser.find() == str(fetched)


def test_missing_browser_is_loud_and_no_failure_on_a_desk(unfetchable: None, capsys: pytest.CaptureFixture[str]):
    browser.main()
    assert "will be SKIPPED" in capsys.readouterr().err


def test_missing_browser_is_a_failure_in_ci(unfetchable: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "1")
    with pytest.raises(SystemExit, match="CI does not run without"):
        browser.main()


def test_sandbox_is_left_out_only_for_root(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--no-sandbox" in browser.arguments()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--no-sandbox" not in browser.arguments()

"""Finds a Chromium for the browser tests, and fetches one where that is possible. Driving it is the tests' own work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REMEDY = "Install Chromium (for example `apt-get install chromium`), or name one: CHROMIUM=/path/to/chromium."


def find() -> str | None:
    """Return the first Chromium that runs: named by CHROMIUM, on PATH, or fetched by playwright earlier."""
    return next((path for path in _candidates() if _runs(path)), None)


def arguments() -> list[str]:
    """Return the command line it needs here: its sandbox refuses root."""
    return [*ARGUMENTS, "--no-sandbox"] if os.geteuid() == 0 else list(ARGUMENTS)


def fetch() -> str | None:
    """Have playwright, then the system's package manager, install one; return it, or None if neither could."""
    _quietly([sys.executable, "-m", "playwright", "install", "chromium"], seconds=180)
    if found := find():
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
        if not _quietly(install, seconds=300, env=environment):
            _quietly(["apt-get", "update"], seconds=120, env=environment)
            _quietly(install, seconds=300, env=environment)
    return find()


def _candidates() -> Iterator[str]:
    if named := os.environ.get("CHROMIUM"):
        yield named
        return
    yield from (path for name in NAMES if (path := shutil.which(name)))
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    for pattern in ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*/Contents/MacOS/*"):
        yield from (str(path) for path in sorted(folder.glob(pattern), reverse=True))


def _runs(path: str) -> bool:
    return _quietly([path, "--version"], seconds=20)


def _quietly(command: list[str], *, seconds: float, env: dict[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main() -> None:
    """Make sure there is a browser; without one say so loudly, and under CI fail."""
    if find():
        return
    print("set-up: looking for a browser to install", file=sys.stderr, flush=True)
    if fetch():
        return
    if os.environ.get("CI"):
        sys.exit(f"set-up: no Chromium, and CI does not run without the browser tests. {REMEDY}")
    print(f"set-up: NO BROWSER: the browser tests will be SKIPPED. {REMEDY}", file=sys.stderr)

"""What is vendored is what was taken, with its licence."""

from __future__ import annotations

import hashlib
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[2] / "static" / "vendor"


def test_every_vendored_file_is_pinned_and_unchanged():
    pinned = dict(line.split("  ")[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(VENDOR)): path for path in VENDOR.rglob("*") if path.is_file()}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
             if name not in ("README.md", "SHA256SUMS")}  # fmt: skip
    assert found == pinned


def test_every_vendored_folder_carries_its_licence():
    folders = [path for path in VENDOR.iterdir() if path.is_dir()]
    assert folders
    assert [folder.name for folder in folders if not (folder / "LICENSE").exists()] == []

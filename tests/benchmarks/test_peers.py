"""Peers that are not there are named in one sentence."""

from __future__ import annotations

import pytest

from benchmarks import peers


def test_missing_folder_is_one_clear_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv(peers.VARIABLE, str(tmp_path))
    with pytest.raises(peers.PeersMissing, match=rf"not in {tmp_path}: name their folder in BENCH_PEERS"):
        peers.folder()


def test_folder_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "_common.py").touch()
    monkeypatch.setenv(peers.VARIABLE, str(tmp_path))
    assert peers.folder() == tmp_path

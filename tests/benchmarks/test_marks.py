"""Marks written by a step are read once, whole, in order."""

from __future__ import annotations

import os

from benchmarks.marks import VARIABLE, Marks, mark


def test_marks_are_read_once_with_their_process(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "marks"))
    marks = Marks(tmp_path / "marks")
    mark("start", "a")
    mark("end", "a")
    seen = marks.new()
    assert [(one.kind, one.key, one.pid) for one in seen] == [("start", "a", os.getpid()), ("end", "a", os.getpid())]
    assert seen[0].at <= seen[1].at
    assert marks.new() == []


def test_half_a_line_waits_for_its_end(tmp_path):
    path = tmp_path / "marks"
    marks = Marks(path)
    with path.open("a") as file:
        file.write("start a 1 10.5\nen")
        file.flush()
        assert [one.kind for one in marks.new()] == ["start"]
        file.write("d a 1 11.5\n")
    assert [(one.kind, one.at) for one in marks.new()] == [("end", 11.5)]

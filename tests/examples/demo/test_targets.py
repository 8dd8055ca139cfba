"""Which rows are struck: two different ones if the file has them, and their titles are taken literally."""

from __future__ import annotations

import fnmatch

from examples.batch_import.source import Choices, open_source
from examples.demo.targets import Targets, choose_targets


def targets_of(tmp_path, text: str) -> Targets:
    path = tmp_path / "file.csv"
    path.write_text("id,name\n" + text, encoding="utf-8")
    return choose_targets(open_source(path, Choices()))


def test_two_rows_are_struck_one_early_and_one_late(tmp_path):
    rows = "".join(f"{n},row {n}\n" for n in range(100))

    assert targets_of(tmp_path, rows) == Targets(times_out="row 25", is_held="row 60")


def test_titles_that_stand_there_once_are_preferred(tmp_path):
    rows = "".join(f"{n},{'same' if 20 < n < 30 else f'row {n}'}\n" for n in range(100))

    assert targets_of(tmp_path, rows).times_out == "row 30"


def test_a_single_row_is_held_and_an_empty_file_is_left_alone(tmp_path):
    assert targets_of(tmp_path, "1,only\n") == Targets(times_out=None, is_held="only")
    assert targets_of(tmp_path, "") == Targets(times_out=None, is_held=None)


def test_a_title_with_wildcards_matches_only_itself(tmp_path):
    held = targets_of(tmp_path, "1,what? [x] *\n").is_held

    assert held
    assert fnmatch.fnmatchcase("what? [x] *", held)
    assert not fnmatch.fnmatchcase("whatx x y", held)

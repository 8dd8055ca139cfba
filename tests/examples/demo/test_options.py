"""What ONCE and CSV mean, and that one checkout plays one demo at a time."""

from __future__ import annotations

import pytest

from examples.demo.options import AIRPORTS, KEPT_FOLDERS, make_folder, read_options
from examples.demo.stage import StageError, only_one


@pytest.mark.parametrize(("value", "once"), [("1", True), ("", False), ("0", False), ("yes", True)])
def test_once_is_on_for_anything_but_nothing_and_zero(value, once):
    assert read_options({"ONCE": value}).once is once


def test_without_a_csv_the_airports_are_imported_and_must_name_their_city():
    options = read_options({})

    assert options.csv == AIRPORTS
    assert options.choices.required == ("city",)


def test_of_a_csv_of_your_own_nothing_is_demanded(tmp_path):
    options = read_options({"CSV": str(tmp_path / "mine.csv")})

    assert options.csv == tmp_path / "mine.csv"
    assert options.choices.required == ()


def test_only_the_newest_folders_are_kept(tmp_path):
    for number in range(KEPT_FOLDERS + 3):
        make_folder(tmp_path / f"2026010{number}")

    assert len(list(tmp_path.iterdir())) == KEPT_FOLDERS


def test_a_second_demo_in_one_checkout_is_refused(tmp_path):
    with only_one(tmp_path), pytest.raises(StageError, match="is running in this checkout already"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass

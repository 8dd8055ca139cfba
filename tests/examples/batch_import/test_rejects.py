"""The rejects file: whole, in order, and never a line twice."""

from __future__ import annotations

import csv

from examples.batch_import.reader import Reject
from examples.batch_import.rejects import merge, write_page


def lines_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_pages_are_merged_in_the_order_of_the_source(tmp_path):
    write_page(tmp_path, first_line=1000, rejects=[Reject(1003, "no id")])
    write_page(tmp_path, first_line=2, rejects=[Reject(5, 'a "reason",\nwith all', "X")])

    assert lines_of(merge(tmp_path)) == [
        ["line", "id", "reason"],
        ["5", "X", 'a "reason",\nwith all'],
        ["1003", "", "no id"],
    ]


def test_a_page_that_is_entered_again_does_not_double_its_lines(tmp_path):
    for _ in range(3):
        write_page(tmp_path, first_line=2, rejects=[Reject(5, "no id")])
        merge(tmp_path)

    assert len(lines_of(merge(tmp_path))) == 2


def test_a_page_without_rejects_withdraws_those_of_an_earlier_try(tmp_path):
    write_page(tmp_path, first_line=2, rejects=[Reject(5, "no id")])
    write_page(tmp_path, first_line=2, rejects=[])

    assert lines_of(merge(tmp_path)) == [["line", "id", "reason"]]


def test_no_half_written_file_is_left_behind(tmp_path):
    write_page(tmp_path, first_line=2, rejects=[Reject(5, "no id")])
    merge(tmp_path)

    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["000000000002.csv", "rejects.csv"]

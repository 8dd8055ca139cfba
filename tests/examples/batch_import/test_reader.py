"""The page reader: positions, bad rows, and agreement with the csv module on whatever hypothesis thinks of."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durableops import Page
from examples.batch_import.lines import BLOCK_BYTES, MAX_RECORD_BYTES
from examples.batch_import.reader import Cursor, Reject, Row, read_page

CHECKOUT = Path(__file__).resolve().parents[3]


def behind(page: Page) -> Cursor:
    """The cursor behind a page, as `run.pages` hands it back after a restart."""
    offset, line = json.loads(json.dumps(page.next_cursor))
    return offset, line


def read_all(path: Path, *, rows: int = 2) -> list[Row | Reject]:
    """Every item, page by page, as a worker that starts anew for each page would."""
    items: list[Row | Reject] = []
    cursor: Cursor = (0, 1)
    while page := read_page(path, cursor, rows=rows):
        following = behind(page)
        assert following > cursor, "cursors only grow"
        assert 1 <= len(page.items) <= rows
        items += page.items
        cursor = following
    return items


def file_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    return path


def fields_of(items: list[Row | Reject]) -> list[list[str]]:
    assert all(isinstance(item, Row) for item in items), items
    return [list(item.fields) for item in items if isinstance(item, Row)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_ends_a_row(tmp_path, end):
    path = file_of(tmp_path, f"a,b{end}c,d{end}".encode())

    assert read_all(path) == [Row(1, ("a", "b")), Row(2, ("c", "d"))]


def test_a_last_row_without_a_line_end_is_a_row(tmp_path):
    assert read_all(file_of(tmp_path, b"a,b\nc,d")) == [Row(1, ("a", "b")), Row(2, ("c", "d"))]


def test_a_quoted_line_end_belongs_to_its_field_and_counts_as_a_line(tmp_path):
    path = file_of(tmp_path, b'1,"two\r\nlines"\r\n2,x\r\n')

    assert read_all(path) == [Row(1, ("1", "two\r\nlines")), Row(3, ("2", "x"))]


def test_empty_lines_are_passed_over_and_counted_as_lines(tmp_path):
    path = file_of(tmp_path, b"\n\na,b\n\n  \nc,d\n\n\n")

    assert read_all(path, rows=1) == [Row(3, ("a", "b")), Row(6, ("c", "d"))]


def test_short_and_long_rows_come_as_they_are(tmp_path):
    assert fields_of(read_all(file_of(tmp_path, b"a\na,b\na,b,c\n"))) == [["a"], ["a", "b"], ["a", "b", "c"]]


def test_a_row_that_is_not_utf8_is_rejected_and_the_next_is_not(tmp_path):
    path = file_of(tmp_path, b"a,b\nc,\xe9t\xe9\ne,f\n")

    assert read_all(path) == [Row(1, ("a", "b")), Reject(2, "not UTF-8"), Row(3, ("e", "f"))]


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path):
    path = file_of(tmp_path, b'a,b\nc,"d\ne,f\ng,h\n')

    items = read_all(path)

    assert items == [
        Row(1, ("a", "b")),
        Reject(2, "a quote is not closed before the end of the file"),
        Row(3, ("e", "f")),
        Row(4, ("g", "h")),
    ]


def test_a_quote_that_swallows_too_much_costs_one_row(tmp_path):
    filling = b"x,y\n" * (MAX_RECORD_BYTES // 4)
    path = file_of(tmp_path, b'a,"b\n' + filling + b"e,f\n")

    items = read_all(path, rows=1000)

    assert isinstance(items[0], Reject)
    assert items[0].line == 1
    assert "is a quote not closed" in items[0].reason
    assert items[-1] == Row(2 + MAX_RECORD_BYTES // 4, ("e", "f"))


def test_a_line_that_is_too_long_costs_one_row(tmp_path):
    path = file_of(tmp_path, b"a,b\n" + b"x" * (3 * MAX_RECORD_BYTES) + b"\nc,d\n")

    first, rejected, last = read_all(path)

    assert (first, last) == (Row(1, ("a", "b")), Row(3, ("c", "d")))
    assert isinstance(rejected, Reject)
    assert rejected.line == 2


def test_a_carriage_return_at_the_end_of_a_block_is_not_two_line_ends(tmp_path):
    first = b"x" * (BLOCK_BYTES - 1)
    path = file_of(tmp_path, first + b"\r\nc,d\r\n")

    assert read_all(path) == [Row(1, (first.decode(),)), Row(2, ("c", "d"))]


def test_a_page_ends_before_a_stop(tmp_path):
    path = file_of(tmp_path, b"a\nb\nc\nd\n")

    page = read_page(path, (0, 1), rows=10, stops=[3])

    assert page
    assert [item.line for item in page.items] == [1, 2]
    assert page.next_cursor == [4, 3]


def test_there_is_no_page_behind_the_last(tmp_path):
    path = file_of(tmp_path, b"a\n\n\n")

    page = read_page(path, (0, 1), rows=10)

    assert page
    assert read_page(path, behind(page), rows=10) is None


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8) | st.sampled_from(
    ['"', "\n", "\r\n", "\r", ",", '""', "a\nb", " ", "é", "𝒳"]
)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=12)


@settings(max_examples=300)
@given(table=TABLES, end=st.sampled_from(["\n", "\r\n"]), page=st.integers(1, 5), quoting=st.sampled_from([0, 1]))
def test_pages_hold_what_the_csv_module_wrote(tmp_path_factory, table, end, page, quoting):
    text = io.StringIO()
    csv.writer(text, lineterminator=end, quoting=quoting).writerows(table)
    path = file_of(tmp_path_factory.mktemp("csv"), text.getvalue().encode())

    assert fields_of(read_all(path, rows=page)) == table


@settings(max_examples=500)
@given(
    content=st.lists(st.sampled_from(["a", "b", ",", '"', "\n", "\r", "\r\n", " ", "é"]), max_size=40),
    page=st.integers(1, 4),
)
def test_rows_are_those_of_the_csv_module_however_odd_the_text(tmp_path_factory, content, page):
    data = "".join(content).encode()
    path = file_of(tmp_path_factory.mktemp("csv"), data)
    with path.open(encoding="utf-8", newline="") as file:
        expected = [row for row in csv.reader(file) if row and not (len(row) == 1 and not row[0].strip())]

    items = read_all(path, rows=page)

    if any(isinstance(item, Reject) for item in items):
        # Only an unclosed quote is treated in another way than by csv, which swallows the rest of the file.
        assert data.count(b'"') >= 1
        return
    assert fields_of(items) == expected


@settings(max_examples=200)
@given(data=st.binary(max_size=300), page=st.integers(1, 4))
def test_any_bytes_can_be_read_to_the_end_with_growing_cursors_and_lines(tmp_path_factory, data, page):
    path = file_of(tmp_path_factory.mktemp("csv"), data)

    items = read_all(path, rows=page)

    assert [item.line for item in items] == sorted({item.line for item in items})
    assert items == read_all(path, rows=1000)


READ_A_MILLION = """
import re, sys
from pathlib import Path
from examples.batch_import.layout import item_of
from examples.batch_import.reader import read_page
from examples.batch_import.source import Choices, open_source
source = open_source(Path(sys.argv[1]), Choices())
cursor, count = source.start, 0
while page := read_page(source.path, cursor, rows=500):
    count += sum(item_of(row, source.layout) is not None for row in page.items)
    cursor = tuple(page.next_cursor)
# Not getrusage: its peak begins with that of the process which started this one.
print(count, int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_a_million_rows_are_read_in_bounded_memory(tmp_path):
    path = tmp_path / "million.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("id,name,city\n")
        file.writelines(f'{n},Place {n},"Town, {n % 100}"\n' for n in range(1_000_000))

    done = subprocess.run(
        [sys.executable, "-c", READ_A_MILLION, str(path)],
        capture_output=True, text=True, check=True, timeout=120, cwd=CHECKOUT,
    )  # fmt: skip
    count, megabytes = map(int, done.stdout.split())

    assert count == 1_000_000
    assert megabytes < 100

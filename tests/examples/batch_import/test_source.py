"""What is refused before anything starts, and what is found out about a good file."""

from __future__ import annotations

from pathlib import Path

import pytest

from durableops.errors import InputRefused
from examples.batch_import.reader import read_page
from examples.batch_import.shards import bounds_of, count_rows, shard_at
from examples.batch_import.source import Choices, open_source

AIRPORTS = Path(__file__).resolve().parents[3] / "examples/batch_import/data/airports.csv"


def file_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\n\r\n  \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8"),
        ("id,name\n1,é\n".encode("utf-16"), "not UTF-8 text"),
        (b"id,n\xe9e\n1,x\n", "not UTF-8"),
        (b"1,Alice\n2,Bob\n", "there is no header"),
        (b",,\n1,2,3\n", "names no column"),
        (b'id,"name\n' + b"x" * 200_000, "too long"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_with_its_name_and_a_remedy(tmp_path, content, complaint):
    path = file_of(tmp_path, content)

    with pytest.raises(InputRefused, match=complaint) as refused:
        open_source(path, Choices())

    assert str(path) in str(refused.value)


def test_a_nul_behind_the_first_line_refuses_no_file(tmp_path):
    assert open_source(file_of(tmp_path, b"id,name\n1,a\x00b\n2,x\n"), Choices()).layout.columns == ("id", "name")


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputRefused, match="No such file"):
        open_source(tmp_path / "nowhere.csv", Choices())
    with pytest.raises(InputRefused, match="directory"):
        open_source(tmp_path, Choices())


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_byte_order_mark_line_ends_and_separator_are_seen(tmp_path, bom, end, delimiter):
    path = file_of(tmp_path, bom + end.join(["id,name", "1,é", ""]).replace(",", delimiter).encode())

    source = open_source(path, Choices())

    page = read_page(path, source.start, delimiter=source.delimiter, rows=9)
    assert page
    assert source.layout.columns == ("id", "name")
    assert [(row.line, row.fields) for row in page.items] == [(2, ("1", "é"))]


def test_a_header_alone_is_a_file_with_no_rows(tmp_path):
    source = open_source(file_of(tmp_path, b"id,name\n"), Choices())

    assert count_rows(source) == 0
    assert bounds_of(source, rows=0, shards=1) == [source.start]


def test_a_required_column_must_be_there(tmp_path):
    with pytest.raises(InputRefused, match="'town' is not there"):
        open_source(file_of(tmp_path, b"id,name\n1,x\n"), Choices(required=("town",)))


def test_the_bundled_airports_are_3376_rows_known_by_their_code_and_name():
    source = open_source(AIRPORTS, Choices(required=("city",), missing=("NA",)))

    assert count_rows(source) == 3376
    assert source.layout.columns[source.layout.id_column or 0] == "iata"
    assert source.layout.title_column == 1


def test_shards_begin_at_rows_and_together_are_the_file():
    source = open_source(AIRPORTS, Choices())
    bounds = bounds_of(source, rows=3376, shards=4)

    assert bounds[0] == source.start
    assert [line for _, line in bounds] == [2, 846, 1690, 2534]
    for position, line in bounds:
        page = read_page(AIRPORTS, (position, line), rows=1)
        assert page
        assert page.items[0].line == line
        assert len(page.items[0].fields) == 7


@pytest.mark.parametrize(("line", "shard"), [(1, 1), (2, 1), (845, 1), (846, 2), (9999, 3)])
def test_a_line_lies_in_the_shard_that_began_last(line, shard):
    assert shard_at([(0, 2), (500, 846), (900, 1690)], line) == shard

"""Which columns are what, and which rows can become tickets: tables of cases, no files."""

from __future__ import annotations

import pytest

from durableops.errors import InputRefused
from examples.batch_import.layout import (
    ID_AS_TITLE,
    WHOLE_ROW,
    Item,
    Layout,
    check_header,
    choose_id,
    choose_title,
    item_of,
    named,
)
from examples.batch_import.reader import Reject, Row

LAYOUT = Layout(columns=("id", "name", "city"), id_column=0, title_column=1)


def rows(*tables: tuple[str, ...]) -> list[Row]:
    return [Row(line, fields) for line, fields in enumerate(tables, start=2)]


@pytest.mark.parametrize(
    ("columns", "sample", "wanted", "position"),
    [
        (("name", "id"), rows(), "", 1),
        (("name", " ID "), rows(), "", 1),
        (("id", "uuid"), rows(), "", 0),
        (("iata", "name"), rows(("A", "x"), ("B", "y")), "", 0),
        (("code", "name"), rows(("A", "x"), ("A", "y")), "", None),
        (("city", "order_id"), rows(("x", "1"), ("x", "2")), "", 1),
        (("city", "orderId"), rows(("x", "1"), ("x", "2")), "", 1),
        (("city", "airline_id"), rows(("x", "1"), ("y", "1")), "", None),
        (("city", "size"), rows(("x", "1")), "", None),
        (("id", "size"), rows(), "size", 1),
        (("id", "size"), rows(), WHOLE_ROW, None),
    ],
)
def test_the_id_column_is_asked_for_usual_or_guessed_by_its_values(columns, sample, wanted, position):
    assert choose_id(columns, sample, wanted=wanted) == position


@pytest.mark.parametrize(
    ("columns", "wanted", "position"),
    [
        (("id", "city", "name"), "", 2),
        (("id", "Title", "name"), "", 1),
        (("id", "city"), "", None),
        (("id", "city"), "city", 1),
        (("id", "name"), ID_AS_TITLE, None),
    ],
)
def test_the_title_column_is_asked_for_usual_or_none(columns, wanted, position):
    assert choose_title(columns, id_column=0, wanted=wanted) == position


@pytest.mark.parametrize(("columns", "complaint"), [(("a", "b"), "is not there"), (("x", "x"), "is there 2 times")])
def test_a_column_that_is_not_there_once_is_refused_with_the_columns_named(columns, complaint):
    with pytest.raises(InputRefused, match=complaint):
        choose_id(columns, rows(), wanted="x")


@pytest.mark.parametrize(
    "columns",
    [
        ("00M", "Thigpen", "31.95376472"),
        ("1", "Alice"),
        ("2026-01-31", "x"),
        ("x", "alice@example.org"),
        ("x", "-3"),
        ("", " "),
        (),
        ("a\x01", "b"),
        ("123456", "x"),
    ],
)
def test_a_first_line_that_looks_like_data_is_no_header(columns):
    with pytest.raises(InputRefused):
        check_header(columns)


@pytest.mark.parametrize("columns", [("id", "name"), ("country", "1960", "1961"), ("a", ""), ("naïve", "価格")])
def test_a_first_line_of_names_is_a_header(columns):
    check_header(columns)


def test_columns_get_names_of_their_own():
    assert named(["a", "", "a", " a "]) == ("a", "column 2", "a (3)", "a (4)")


def test_a_good_row_asks_for_a_ticket():
    assert item_of(Row(7, (" X1 ", "A  name", "Oslo")), LAYOUT) == Item(
        line=7, reference="X1", title="A name", details={"city": "Oslo"}
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (("X1", "name"), "2 fields; wanted 3"),
        (("X1", "name", "Oslo", ""), "4 fields; wanted 3"),
        (("", "name", "Oslo"), "no id"),
        (("X1", "", "Oslo"), "no name"),
        (("X1", "name", "Os\x00lo"), "a NUL character"),
        (("X\n1", "name", "Oslo"), "the id has control characters or unusual spaces"),
        (("é" * 101, "name", "Oslo"), "the id is longer than 200 bytes"),
        (("X1", "n" * 501, "Oslo"), "the title is longer than 500 characters"),
    ],
)
def test_a_bad_row_is_rejected_with_its_line_and_reason(fields, reason):
    rejected = item_of(Row(7, fields), LAYOUT)

    assert isinstance(rejected, Reject)
    assert (rejected.line, rejected.reason) == (7, reason)


def test_a_required_column_may_not_hold_what_means_nothing():
    layout = Layout(
        columns=("id", "name", "city"), id_column=0, title_column=1, required=(2,), missing=frozenset({"", "NA"})
    )

    assert item_of(Row(2, ("X1", "name", "NA")), layout) == Reject(2, "no city", "X1")
    assert isinstance(item_of(Row(2, ("X1", "name", "Nantes")), layout), Item)


def test_without_an_id_column_equal_rows_have_equal_references():
    layout = Layout(columns=("a", "b"), id_column=None, title_column=None)
    one, same, other = (
        item_of(Row(line, fields), layout) for line, fields in [(2, ("x", "y")), (3, ("x", "y")), (4, ("xy", ""))]
    )

    assert isinstance(one, Item)
    assert isinstance(same, Item)
    assert isinstance(other, Item)
    assert one.reference == same.reference != other.reference
    assert one.title == one.reference

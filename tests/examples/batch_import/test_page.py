"""What a page makes of its rows and of the engine's answers; the engine is played by a table of results."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import CallFailed, DuplicateName, EffectConflict, Refused
from examples.batch_import.layout import Layout
from examples.batch_import.page import import_page, sift
from examples.batch_import.reader import Reject, Row

LAYOUT = Layout(columns=("id", "name"), id_column=0, title_column=1)


class PlayedRun:
    """Answers calls from a table; a resource that is not in it gets a ticket."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[dict[str, Any]] = []

    def call_many(self, tool: Any, items: list[dict[str, Any]], *, on_error: str) -> list[Any]:
        assert on_error == "return"
        self.asked += items
        return [self.answers.get(item["resource"], {"id": f"T-{item['resource']}"}) for item in items]


def page(run: PlayedRun, *rows: Row | Reject):
    return import_page(run, LAYOUT, rows)  # type: ignore[arg-type]


def test_every_good_row_is_asked_for_under_its_id():
    run = PlayedRun()

    outcome = page(run, Row(2, ("a", "A")), Row(3, ("b", "B")))

    assert (outcome.imported, outcome.duplicates, outcome.rejects) == (2, 0, [])
    assert run.asked == [
        {"resource": "a", "title": "A", "details": {}},
        {"resource": "b", "title": "B", "details": {}},
    ]


def test_bad_rows_are_rejected_in_the_order_of_the_source():
    outcome = page(PlayedRun({"b": Refused("too rude")}), Row(2, ("b", "B")), Reject(3, "not UTF-8"), Row(4, ("c",)))

    assert [(reject.line, reject.reason) for reject in outcome.rejects] == [
        (2, "refused by the desk: too rude"),
        (3, "not UTF-8"),
        (4, "1 fields; wanted 2"),
    ]
    assert outcome.imported == 0


def test_a_second_row_of_a_page_is_a_duplicate_if_it_is_equal_and_a_conflict_if_not():
    items, rejects, duplicates = sift(
        LAYOUT, [Row(2, ("a", "A")), Row(3, ("a", "A")), Row(4, ("a", "B")), Row(5, ("a ", "A"))]
    )

    assert [item.line for item in items] == [2]
    assert duplicates == 2
    assert [reject.reason for reject in rejects] == [
        "duplicate of line 2",
        "line 2 has this id with other content",
        "duplicate of line 2",
    ]


def test_a_slot_of_an_earlier_page_says_duplicate_or_conflict():
    run = PlayedRun({"a": DuplicateName("earlier page"), "b": EffectConflict("other request")})

    outcome = page(run, Row(8, ("a", "A")), Row(9, ("b", "B")), Row(10, ("c", "C")))

    assert (outcome.imported, outcome.duplicates) == (1, 1)
    assert [reject.reason for reject in outcome.rejects] == [
        "duplicate of an earlier row",
        "an earlier row has this id with other content",
    ]


def test_a_call_that_got_no_answer_fails_the_page_so_that_it_is_tried_again():
    with pytest.raises(CallFailed):
        page(PlayedRun({"a": CallFailed("gave up")}), Row(2, ("a", "A")))

"""The drill's table and its verdict, without any process: what is right passes, and each kind of wrong has its name."""

from __future__ import annotations

from typing import Any

import pytest

from durableops.upkeep.drills.checks import Checks
from examples.five_classes.cells import CLASSES, NO_SUCH_MOMENT, WAYS, Cell, Moment, Row, rows
from examples.five_classes.outside import Counted
from examples.five_classes.verdict import PROMISES, Told, check, row_of_report, rows_of_report, summary

CELL = Cell(row=Row(safety="keyed", way="one"), moment=Moment.IN_FLIGHT)
[TEXT] = CELL.effects


def told(*events: str, repeats: int = 1, **over: Any) -> Told:
    effect = {
        "id": 7, "step": CELL.step, "resource": TEXT, "state": "succeeded", "safety": "keyed", "downstream_key": "k",
    }  # fmt: skip
    names = [*(events or ("lose_worker",)), *["effects_repeated"] * repeats]
    timeline = [{"event": name, "step": CELL.step, "data": {"effects": [7]}} for name in names]
    return Told(run={"state": "succeeded"}, timeline=timeline, effects=[effect | over])


def seen(requests: int = 2, done: int = 1, keys: str = "k") -> Counted:
    found = Counted()
    found.requests[TEXT], found.done[TEXT] = requests, done
    found.keys[TEXT] = set(keys)
    return found


def wrong(of_run: Told, counted: Counted) -> list[str]:
    return [problem["what"] for problem in row_of_report(CELL, of_run, counted)["wrong"]]


def test_a_call_that_went_out_again_and_says_so_is_right():
    assert wrong(told(), seen()) == []


@pytest.mark.parametrize(
    ("of_run", "counted", "what"),
    [
        (told(), seen(done=2), "doubled"),
        (told(), seen(done=0), "lost"),
        (told(state="intended"), seen(), "lost"),
        (told(state="in_doubt"), seen(), "lost"),
        (told(repeats=0), seen(), "repeated"),
        (told(), seen(requests=3), "repeated"),
        (told(), seen(keys="kx"), "unknown"),
        (told("call_timeout"), seen(), "unplayed"),
        (told(step="another"), seen(), "lost"),
    ],
)
def test_what_is_wrong_with_a_cell_has_its_name(of_run: Told, counted: Counted, what: str):
    assert wrong(of_run, counted) == [what]


def test_a_wrong_cell_fails_the_check_of_its_promise_and_no_other():
    checks = Checks()
    rows = [row_of_report(CELL, told(), seen(done=2)), row_of_report(CELL, told(), seen())]

    check(rows, checks)

    assert [one.name for one in checks.made] == list(PROMISES.values())
    assert [one.name for one in checks.made if not one.passed] == ["no_duplicate_unseen"]
    assert TEXT in next(one.detail for one in checks.made if not one.passed)
    assert "WRONG" in summary(rows)


def test_a_row_of_which_the_api_tells_nothing_is_wrong_in_every_cell():
    row = Row(safety="local", way="many")

    found = rows_of_report({row: Told(run={"state": "queued"}, timeline=[], effects=[])}, Counted())

    assert [one["cell"] for one in found] == [str(cell) for cell in row.cells]
    assert all({problem["what"] for problem in one["wrong"]} == {"unplayed", "lost"} for one in found)


def test_every_class_is_called_in_every_way_at_every_moment_that_it_has():
    played = {(cell.row.safety, cell.row.way, cell.moment) for row in rows() for cell in row.cells}
    missing = {(safety, moment) for safety, moment in NO_SUCH_MOMENT}

    assert played == {
        (safety, way, moment)
        for safety in CLASSES
        for way in WAYS
        for moment in Moment
        if (safety, moment) not in missing
    }
    steps = [cell.step for row in rows() for cell in row.cells]
    assert len(set(steps)) == len(steps), "a failpoint that is narrowed to a step would strike two cells"


def test_rows_are_chosen_by_name():
    assert [str(row) for row in rows("keyed-one,local-many")] == ["local-many", "keyed-one"]
    with pytest.raises(ValueError, match="'shark-one'"):
        rows("shark-one")

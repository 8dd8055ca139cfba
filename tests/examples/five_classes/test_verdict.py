"""The drill's table and its verdict, without any process: what is right passes, and each kind of wrong has its name."""

from __future__ import annotations

from typing import Any

import pytest

from durableops.upkeep.drills.checks import Checks
from examples.five_classes.cells import CLASSES, DOUBTFUL, WAYS, Cell, Moment, Row, missing, moments, rows, why_not
from examples.five_classes.outside import Counted
from examples.five_classes.verdict import IN_DOUBT, PROMISES, Told, check, row_of_report, summary

CELL = Cell(row=Row(safety="keyed", way="one"), moment=Moment.IN_FLIGHT)
LEGACY = Cell(row=Row(safety="legacy", way="one"), moment=Moment.LOST_REQUEST)
DID_NOT = ("settle", {"effect": 7, "as": "did_not"})
HAPPENED = ("settle", {"effect": 7, "as": "happened"})
REPEATED = ("effects_repeated", {"effects": [7]})
DOUBTED = (IN_DOUBT, {"effect": 7})
LOST: tuple[str, dict[str, Any]] = ("lose_worker", {})


def told(*events: tuple[str, dict[str, Any]], cell: Cell = CELL, **over: Any) -> Told:
    effect = {
        "id": 7, "step": "undo" if cell.undoing else cell.step, "resource": cell.effects[0], "state": "succeeded",
        "safety": cell.row.safety, "downstream_key": "k",
    }  # fmt: skip
    step = "undo" if cell.undoing else cell.step
    timeline = [{"event": name, "step": step, "data": data} for name, data in events]
    return Told(run={"state": "succeeded"}, timeline=timeline, effects=[effect | over])


def seen(requests: int = 2, done: int = 1, keys: str = "k", *, cell: Cell = CELL) -> Counted:
    found, text = Counted(), cell.text(cell.effects[0])
    found.requests[text], found.done[text] = requests, done
    found.keys[text] = set(keys)
    return found


def wrong(of_run: Told, counted: Counted, *, cell: Cell = CELL, precise: bool = True, struck: bool = True) -> list[str]:
    made = row_of_report(cell, of_run, counted, struck=[cell] * struck, precise=precise)
    return [problem["what"] for problem in made["wrong"]]


def test_a_call_that_went_out_again_and_says_so_is_right():
    assert wrong(told(LOST, REPEATED), seen()) == []


def test_a_legacy_call_that_somebody_knew_had_not_happened_may_go_out_again():
    assert wrong(told(DOUBTED, DID_NOT, cell=LEGACY), seen(cell=LEGACY), cell=LEGACY) == []
    assert wrong(told(DOUBTED, HAPPENED, cell=LEGACY), seen(cell=LEGACY), cell=LEGACY) == ["repeated"]


@pytest.mark.parametrize(
    ("of_run", "counted", "what"),
    [
        (told(LOST, REPEATED), seen(done=2), "doubled"),
        (told(LOST, REPEATED), seen(done=0), "lost"),
        (told(LOST, REPEATED, state="intended"), seen(), "lost"),
        (told(LOST, REPEATED, state="in_doubt"), seen(), "lost"),
        (told(LOST, REPEATED, step="another"), seen(), "lost"),
        (told(LOST), seen(), "repeated"),
        (told(LOST, REPEATED), seen(requests=3), "repeated"),
        (told(LOST, ("effects_repeated", {"effects": [8]})), seen(), "repeated"),
        (told(LOST, REPEATED), seen(keys="kx"), "unknown"),
        (told(LOST, REPEATED, DOUBTED), seen(), "doubted"),
        (told(REPEATED), seen(), "unseen"),
    ],
)
def test_what_is_wrong_with_a_cell_has_its_name(of_run: Told, counted: Counted, what: str):
    assert wrong(of_run, counted) == [what]


def test_a_cell_that_nothing_struck_was_not_played():
    assert wrong(told(REPEATED), seen(), struck=False) == ["unplayed"]


def test_a_doubtful_legacy_call_must_have_been_in_doubt_and_no_other_may_unless_others_were_killed_with_it():
    early = Cell(row=LEGACY.row, moment=Moment.BEFORE_INTENT)

    assert wrong(told(cell=LEGACY), seen(1, cell=LEGACY), cell=LEGACY) == ["doubted"]
    assert wrong(told(LOST, DOUBTED, cell=early), seen(1, cell=early), cell=early) == ["doubted"]
    assert wrong(told(LOST, DOUBTED, cell=early), seen(1, cell=early), cell=early, precise=False) == []


def test_an_undoing_is_found_by_its_resource_and_counted_by_its_own_text():
    undone = CELL.undone
    answer = told(LOST, REPEATED, cell=undone)

    assert wrong(answer, seen(cell=undone), cell=undone) == []
    assert wrong(answer, seen(cell=CELL), cell=undone) == ["lost"]
    assert wrong(told(REPEATED, cell=undone), seen(cell=undone), cell=undone) == ["unseen"]


def test_a_wrong_cell_fails_the_check_of_its_promise_and_no_other():
    checks, answer = Checks(), told(LOST, REPEATED)
    made = [row_of_report(CELL, answer, counted, struck=[CELL], precise=True) for counted in (seen(done=2), seen())]

    check(made, checks)

    assert [one.name for one in checks.made] == list(PROMISES.values())
    assert [one.name for one in checks.made if not one.passed] == ["no_duplicate_unseen"]
    assert CELL.effects[0] in next(one.detail for one in checks.made if not one.passed)
    assert "WRONG" in summary(made)


def test_every_class_is_called_in_every_way_at_every_moment_that_it_has():
    played = [cell for row in rows() for cell in row.cells]

    assert {(cell.row.safety, cell.row.way, cell.moment) for cell in played} == {
        (safety, way, moment) for safety in CLASSES for way in WAYS for moment in Moment if not why_not(safety, moment)
    }
    assert all(any(cell.moment is moment for cell in played) for moment in Moment)
    assert len({cell.step for cell in played}) == len(played), "a failpoint of a step would strike two cells"
    assert all(cell.is_interrupted for cell in played)
    assert any("outbox: no after_answer" in line for line in missing())


def test_every_moment_at_which_a_legacy_call_may_be_on_the_wire_is_doubtful():
    early = {Moment.BEFORE_INTENT, Moment.AFTER_INTENT, Moment.AFTER_RESULT, Moment.BEFORE_CHECKPOINT}

    assert {cell.moment for cell in Row(safety="legacy", way="one").cells} == early | set(DOUBTFUL)


def test_rows_are_chosen_by_name():
    assert [str(row) for row in rows("keyed-one,local-many")] == ["local-many", "keyed-one"]
    assert moments("in_flight") == [Moment.IN_FLIGHT]
    with pytest.raises(ValueError, match="'shark-one'"):
        rows("shark-one")

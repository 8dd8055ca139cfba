"""The table of the drill `retention` is complete, and what is wrong with a count is told."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from examples.keeping.cells import CLASSES, DAYS, ENDED, HOLDS, NO_MORE, NOTHING, OPEN, ROW, Cell, ages, cells
from examples.keeping.counts import wrongly_deleted, wrongly_kept
from runs.retention.classes import CLASSES as REAL_CLASSES
from runs.retention.classes import HOLDERS

RUN = UUID(int=1)


def sides_of(short: bool) -> set[tuple[str, tuple[str, str]]]:
    return {(cell.held_by, side) for cell in cells(short=short) if not cell.is_open for side in cell.sides}


@pytest.mark.parametrize(("short", "held_by"), [(True, NOTHING), *((False, held_by) for held_by in (NOTHING, *HOLDS))])
def test_every_class_has_a_run_on_both_sides_of_its_window(short, held_by):
    sides = {side for each, side in sides_of(short) if each == held_by}
    assert {(name, "past it") for name in CLASSES} <= sides
    assert {(name, "before it") for name in CLASSES if DAYS[name] > 0} <= sides


def test_short_form_has_each_holder_past_the_first_window_one_in_the_middle_and_the_last():
    sides = sides_of(short=True)
    for held_by, name in product(HOLDS, ("temp_file", "checkpoint", ROW)):
        assert (held_by, (name, "past it")) in sides


def test_long_form_has_every_state_with_every_holder_at_every_age():
    every = set(cells(short=False))
    assert {Cell(state, held_by, hours) for state, held_by, hours in product(ENDED, (*HOLDS, *NO_MORE), ages())} < every
    assert {(cell.state, cell.held_by) for cell in every if cell.is_open} == set(product(OPEN, (NOTHING, *HOLDS)))
    assert len(list(cells(short=False))) == len(every)


def test_table_knows_every_class_and_at_least_as_many_holders_as_the_product():
    assert set(CLASSES) == set(REAL_CLASSES)
    assert len(HOLDS) >= len(HOLDERS)


@pytest.mark.parametrize(
    ("cell", "stays"),
    [
        (Cell("succeeded", NOTHING, 217), set()),
        (Cell("succeeded", NOTHING, 25), set(CLASSES) - {"temp_file", "raw_prompt"}),
        (Cell("succeeded", NOTHING, 215), {ROW}),
        (Cell("queued", NOTHING, 9600), set(CLASSES)),
        (Cell("succeeded", "shared effect", 217), {"effect_body", ROW}),
        (Cell("cancelled", "may be reopened", 217), set()),
        (Cell("failed", "may be reopened", 217), set(CLASSES) - {"raw_prompt", "event"}),
    ],
)
def test_what_stays_is_what_is_young_or_needed_and_the_row_under_it(cell, stays):
    assert cell.stays() == stays


def test_hold_that_was_lifted_keeps_nothing():
    assert Cell("failed", "hold on the run", 217).stays() == set(CLASSES)
    assert Cell("failed", "hold on the run", 217).stays(lifted=True) == set()


def test_what_is_missing_and_what_is_left_are_told_with_their_run():
    cell = Cell("succeeded", NOTHING, 25)
    made = {RUN: dict.fromkeys(CLASSES, 2)}
    right = {RUN: {name: 0 if name in ("temp_file", "raw_prompt") else 2 for name in CLASSES}}
    assert (wrongly_deleted({RUN: cell}, made, right), wrongly_kept({RUN: cell}, made, right)) == ([], [])
    [lost] = wrongly_deleted({RUN: cell}, made, {RUN: right[RUN] | {"input": 1}})
    assert lost == f"succeeded, nothing, 25 h ({RUN}): input has 1 of 2"
    [left] = wrongly_kept({RUN: cell}, made, {RUN: right[RUN] | {"raw_prompt": 1}})
    assert left == f"succeeded, nothing, 25 h ({RUN}): raw_prompt still has 1 of 2"

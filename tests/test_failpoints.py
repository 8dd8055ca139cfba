"""Failpoints: what can be armed, and which passing of which point they happen on."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from durableops import failpoints
from durableops.failpoints import FailpointReached, Point

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _disarm():
    yield
    failpoints.arm("")


def test_an_unarmed_point_is_passed():
    failpoints.reach(Point.AFTER_INTENT)


def test_a_point_happens_on_the_passing_it_was_armed_for():
    failpoints.arm("after_intent=raise@2")

    failpoints.reach(Point.AFTER_INTENT)
    with pytest.raises(FailpointReached):
        failpoints.reach(Point.AFTER_INTENT)
    failpoints.reach(Point.AFTER_INTENT)


def test_a_point_that_is_armed_for_a_step_happens_in_that_step_only():
    failpoints.arm("after_checkpoint:ship=raise")

    failpoints.reach(Point.AFTER_CHECKPOINT, "price")
    failpoints.reach(Point.BEFORE_CHECKPOINT, "ship")
    with pytest.raises(FailpointReached, match="after_checkpoint:ship"):
        failpoints.reach(Point.AFTER_CHECKPOINT, "ship")


def test_a_point_with_a_charge_happens_once_and_again_when_it_is_charged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DURABLEOPS_FAILPOINT_CHARGES", str(tmp_path))
    failpoints.arm("after_intent:ship=raise@2")
    for _ in range(3):
        failpoints.reach(Point.AFTER_INTENT, "ship")  # no charge: not even counted

    for _ in range(2):
        (tmp_path / "after_intent:ship").touch()
        failpoints.reach(Point.AFTER_INTENT, "ship")
        with pytest.raises(FailpointReached):
            failpoints.reach(Point.AFTER_INTENT, "ship")
        failpoints.reach(Point.AFTER_INTENT, "ship")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["after_lunch=kill", "after_intent=sing", "after_intent=kill@x", "after_intent"])
def test_what_cannot_be_armed_is_named(text: str):
    with pytest.raises(ValueError, match=text):
        failpoints.arm(text)


@cache
def texts(*folders: str) -> str:
    files = (path for folder in folders for path in (CHECKOUT / folder).rglob("*.py"))
    others = (path for path in files if path.name not in ("failpoints.py", Path(__file__).name))
    return "\n".join(path.read_text(encoding="utf-8") for path in others)


@pytest.mark.parametrize("point", Point)
def test_every_point_is_passed_in_production_and_armed_by_a_drill_or_a_test(point: Point):
    passed = rf"reach\(\s*(failpoints\.)?Point\.{point.name}\b"
    armed = rf"""["',{{]{point.value}\b|Point\.{point.name}\b"""

    assert re.search(passed, texts("durableops")), "nothing passes it: take it out"
    assert re.search(armed, texts("tests", "examples")), (
        "nothing is ever killed or held there: no promise about it is proved"
    )

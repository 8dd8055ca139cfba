"""Failpoints: what can be armed, and which passing of which point they happen on."""

from __future__ import annotations

import pytest

from durableops import failpoints
from durableops.failpoints import FailpointReached, Point


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


@pytest.mark.parametrize("text", ["after_lunch=kill", "after_intent=sing", "after_intent=kill@x", "after_intent"])
def test_what_cannot_be_armed_is_named(text: str):
    with pytest.raises(ValueError, match=text):
        failpoints.arm(text)

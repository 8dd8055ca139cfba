"""`eventually` itself: it returns what it waited for, and says what it last saw."""

from __future__ import annotations

import pytest

from tests.waiting import eventually


def test_eventually_returns_the_first_true_answer():
    answers = iter([None, 0, "found"])
    assert eventually(lambda: next(answers)) == "found"


def test_eventually_fails_with_what_it_hoped_for_and_last_saw():
    with pytest.raises(AssertionError, match=r"a row did not come true within 0\.02 s; last answer: 0"):
        eventually(lambda: 0, timeout=0.02, hoping_for="a row")


def test_eventually_shows_the_complaint_of_a_failed_assertion():
    def check() -> bool:
        raise AssertionError("two rows, wanted one")

    with pytest.raises(AssertionError, match="two rows, wanted one"):
        eventually(check, timeout=0.02)

"""Version 7 identifiers: well-formed, unique, and in the order of their time."""

from __future__ import annotations

import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs import ids

pytestmark = pytest.mark.engine


def test_identifier_is_a_version_7_uuid_of_the_standard_variant():
    for _ in range(200):
        made = ids.uuid7()
        assert made.version == 7
        assert made.variant == uuid.RFC_4122


def test_identifiers_do_not_repeat():
    assert len({ids.uuid7() for _ in range(20_000)}) == 20_000


def test_identifier_begins_with_the_milliseconds_of_its_making():
    before = time.time_ns() // 1_000_000
    made = ids.uuid7()
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_later_milliseconds_sort_later(first, second):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: first * 1_000_000)
        one = ids.uuid7()
        patch.setattr(time, "time_ns", lambda: second * 1_000_000)
        two = ids.uuid7()
    assert first == second or (one < two) == (first < second)

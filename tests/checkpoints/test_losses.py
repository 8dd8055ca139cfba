"""The comparison behind states: stricter than ==, and precise about where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from durableops.checkpoints.losses import find_loss


@pytest.mark.parametrize(
    "value",
    [1, "a", None, [1, {"a": (2, 3)}], {1, "1"}, {1: "a", "1": "b"}, Decimal("1.0"), datetime(2026, 1, 1, tzinfo=UTC)],
)
def test_equal_values_of_equal_types_lose_nothing(value: object) -> None:
    assert find_loss(value, value) is None


@pytest.mark.parametrize(
    ("kept", "back", "path"),
    [
        (1, True, ""),
        ([1, 1], [1, 1.0], "/1"),
        ({"a": (1,)}, {"a": [1]}, "/a"),
        ({"a": {1: 2}}, {"a": {"1": 2}}, "/a"),
        ([1, 2], [1], ""),
        ({1}, {True}, ""),
        ([Decimal("1.0")], [Decimal("1.00")], "/0"),
        ({"a": "x"}, {"a": "y"}, "/a"),
    ],
)
def test_losses_are_found_where_they_are(kept: object, back: object, path: str) -> None:
    loss = find_loss(kept, back)
    assert loss is not None
    assert loss.path == path


def test_same_offset_written_by_another_class_is_no_loss() -> None:
    kept = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert find_loss(kept, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET"))) is None

"""What a State refuses while a step changes it."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from durableops.authoring.state import State


class Kept(State):
    source: str
    score: float = 0.0
    shards: list[str] = []


@pytest.mark.parametrize(
    "given", [{}, {"source": 1}, {"source": "a", "more": 1}, {"source": "a", "score": math.nan}, {"source": None}]
)
def test_unfit_input_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Kept(**given)


@pytest.mark.parametrize(("name", "value"), [("score", math.inf), ("score", "much"), ("source", None), ("more", 1)])
def test_unfit_assignment_is_refused_at_its_line(name: str, value: object) -> None:
    state = Kept(source="a")
    with pytest.raises(ValidationError):
        setattr(state, name, value)
    assert state == Kept(source="a")


def test_default_lists_are_not_shared() -> None:
    Kept(source="a").shards.append("x")
    assert Kept(source="a").shards == []

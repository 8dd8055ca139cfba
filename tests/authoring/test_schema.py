"""Which types a state may have, and that their description stands still when only names change."""

from __future__ import annotations

import enum
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Union
from uuid import UUID

import pytest
from pydantic import Field, JsonValue, create_model

from durableops.authoring.schema import describe_state
from durableops.authoring.state import State
from durableops.checkpoints.states import decode_state, encode_state
from durableops.errors import DefinitionError

type Names = list[str]
Sku = NewType("Sku", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shape(enum.Enum):
    LINE = (1, 2)


class Line(State):
    sku: str


class Tree(State):
    name: str
    branches: list[Tree] = []


class Early(State):
    later: Later  # type: ignore[name-defined]  # noqa: F821


def described(annotation: Any) -> Any:
    return describe_state(create_model("Made", __base__=State, value=(annotation, ...)))["fields"]["value"]


@pytest.mark.parametrize(
    ("annotation", "description"),
    [
        (str, "str"),
        (None, "NoneType"),
        (Any, "any"),
        (JsonValue, "any"),
        (Names, {"list": ["str"]}),
        (Sku, "str"),
        (Annotated[int, Field(ge=0)], "int"),
        (list, {"list": ["any"]}),
        (dict, {"dict": ["any"]}),
        (dict[int, list[date]], {"dict": ["int", {"list": ["date"]}]}),
        (tuple[int, ...], {"tuple": ["int", "..."]}),
        (tuple[()], {"tuple": ["any"]}),
        (int | None, {"union": ["NoneType", "int"]}),
        (Union[None, int], {"union": ["NoneType", "int"]}),  # noqa: UP007
        (Literal["b", "a"], {"literal": ["'a'", "'b'"]}),
        (Colour, {"enum": ["'blue'", "'red'"]}),
        (Line, {"fields": {"sku": "str"}}),
    ],
)
def test_types_are_described_by_what_they_hold(annotation: Any, description: Any) -> None:
    assert described(annotation) == description


@pytest.mark.parametrize("kind", [bool, float, bytes, Decimal, datetime, time, timedelta, UUID])
def test_scalars_are_described_by_name(kind: type) -> None:
    assert described(kind) == kind.__name__


def test_state_that_holds_its_own_kind_is_described_and_stored() -> None:
    assert describe_state(Tree)["fields"]["branches"] == {"list": [{"same_as": 0}]}
    tree = Tree(name="a", branches=[Tree(name="b")])
    assert decode_state(Tree, encode_state(tree)) == tree


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (Early, "a type that is not defined"),
        (create_model("Made", __base__=State, value=(Shape, ...)), "values that are not text"),
    ],
)
def test_states_that_cannot_be_stored_are_refused_with_their_place(state: type[State], why: str) -> None:
    with pytest.raises(DefinitionError, match=why) as caught:
        describe_state(state)
    assert ".py:" in caught.value.detail


def test_version_that_became_a_field_is_refused() -> None:
    with pytest.warns(UserWarning, match="shadows"):
        made = create_model("Made", __base__=State, schema_version=(int, 2))
    with pytest.raises(DefinitionError, match="annotates schema_version"):
        describe_state(made)

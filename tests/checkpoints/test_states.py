"""States come back exactly as they were, or are refused before the step is committed."""

from __future__ import annotations

import collections
import enum
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from durableops.authoring.state import State
from durableops.checkpoints.states import decode_state, encode_state, state_from_input
from durableops.errors import CompatibilityError, InputRefused, PayloadRefused


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    FIRST = 1


class Line(State):
    sku: str
    price: Decimal


class Everything(State):
    nothing: None = None
    flag: bool = True
    count: int = 2**53
    ratio: float = 1.0
    text: str = "é😀"
    raw: bytes = b"\x00\xff"
    amount: Decimal = Decimal("0.10")
    moment: datetime = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    local: datetime = datetime(2026, 1, 2)
    day: date = date(2026, 1, 2)
    clock: time = time(1, 2, 3)
    span: timedelta = timedelta(days=2, microseconds=5)
    id: UUID = UUID("12345678-1234-5678-1234-567812345678")
    pair: tuple[int, str] = (1, "a")
    row: tuple[int, ...] = (1, 2, 3)
    members: set[int] = {1, 2}
    frozen: frozenset[str] = frozenset({"a"})
    colour: Colour = Colour.RED
    rank: Rank = Rank.FIRST
    mode: Literal["fast", "safe"] = "safe"
    by_number: dict[int, str] = {1: "a"}
    by_colour: dict[Colour, int] = {Colour.RED: 1}
    by_day: dict[date, int] = {date(2026, 1, 2): 1}
    lines: list[Line] = [Line(sku="x", price=Decimal("1.50"))]
    either: int | str | None = "5"
    free: Any = {"a": [1, 2.5, "x", None, True]}


class Loose(State):
    free: Any = None
    names: list[str] = []
    scores: list[float] = []
    when: datetime | None = None


def refusal(state: State) -> PayloadRefused:
    with pytest.raises(PayloadRefused) as caught:
        encode_state(state)
    return caught.value


# C092
def test_every_documented_type_comes_back_equal_and_of_its_type() -> None:
    state = Everything()

    back = decode_state(Everything, encode_state(state))

    assert back == state
    for name, value in state:
        assert type(getattr(back, name)) is type(value), name
    assert back.moment.utcoffset() == timedelta(hours=5, minutes=30)
    assert str(back.amount) == "0.10"


def test_recorded_text_is_plain_json_with_every_field() -> None:
    document = json.loads(encode_state(Everything()))

    assert document.keys() == Everything.model_fields.keys()
    assert document["amount"] == "0.10"
    assert document["colour"] == "red"


# C092
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Decimal("0.10"), "decimal.Decimal"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime.datetime"),
        (UUID(int=1), "uuid.UUID"),
        (b"x", "bytes"),
        ((1, 2), "tuple"),
        ({1}, "set"),
        (Colour.RED, "Colour"),
        (Rank.FIRST, "Rank"),
        ({"a": Rank.FIRST}, "Rank"),
        (collections.Counter(a=1), "collections.Counter"),
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
    ],
)
def test_types_hidden_in_any_are_refused_instead_of_lost(value: object, kind: str) -> None:
    error = refusal(Loose(free=value))

    assert error.path.startswith("/free")
    assert kind in error.detail


# C092
@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {True: 1}])
def test_keys_hidden_in_any_are_refused_instead_of_turned_into_text(value: object) -> None:
    assert refusal(Loose(free=value)).path == "/free"


# C098
@pytest.mark.parametrize("value", [lambda: 1, (each for each in "ab"), ValueError("x"), object()])
def test_values_that_are_not_data_are_refused_by_field(value: object) -> None:
    assert refusal(Loose(free={"deep": [value]})).path == "/free/deep/0"


# C098
def test_open_file_and_circular_reference_are_refused_by_field() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert refusal(Loose(free=circle)).path == "/free/0"
    with Path(__file__).open() as handle:
        assert "TextIOWrapper" in refusal(Loose(free=handle)).detail


# C091, C089, C094
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "a\0b", "\ud800", 2**60])
def test_values_json_cannot_carry_are_refused_by_field(value: object) -> None:
    assert refusal(Loose(free=[value])).path == "/free/0"


# C094
def test_state_nested_too_deep_is_refused() -> None:
    value: object = 1
    for _ in range(500):
        value = [value]
    assert "deeper than 64" in refusal(Loose(free=value)).detail


def test_list_changed_behind_validation_is_refused() -> None:
    state = Loose()
    state.names.append(5)  # type: ignore[arg-type]
    assert refusal(state).path == "/names/0"

    state = Loose()
    state.scores.append(float("nan"))
    assert refusal(state).path == "/scores/0"


def test_named_time_zone_is_refused_because_only_its_offset_would_be_kept() -> None:
    error = refusal(Loose(when=datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))))

    assert error.path == "/when"
    assert "Europe/Berlin" in error.detail


def test_state_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadRefused, match="at most 100"):
        encode_state(Loose(names=["x" * 100]), max_bytes=100)


# C104
@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"sku": None}, "/sku"),
        ({"sku": 5}, "/sku"),
        ({"price": "many"}, "/price"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_recorded_value_that_cannot_be_read_is_refused_with_its_path(change: dict[str, object], path: str) -> None:
    text = json.dumps({"sku": "x", "price": "1.50", **change})

    with pytest.raises(CompatibilityError) as caught:
        decode_state(Line, text)

    assert caught.value.path == path
    assert "recorded state of Line" in caught.value.detail


# C104
def test_member_that_an_enum_no_longer_has_is_refused() -> None:
    text = encode_state(Everything()).replace('"colour":"red"', '"colour":"blue"')
    with pytest.raises(CompatibilityError) as caught:
        decode_state(Everything, text)
    assert caught.value.path == "/colour"


# C104
def test_missing_field_without_default_is_refused() -> None:
    with pytest.raises(CompatibilityError) as caught:
        decode_state(Line, '{"sku":"x"}')
    assert caught.value.path == "/price"


# C104
@pytest.mark.parametrize("text", ["", "null", "[]", '{"sku":', '{"sku":"x","sku":"y","price":"1"}', '{"price":NaN}'])
def test_recorded_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(CompatibilityError):
        decode_state(Line, text)


def test_other_schema_version_is_refused_before_anything_is_read() -> None:
    with pytest.raises(CompatibilityError, match="schema version 2; the code has 1"):
        decode_state(Line, "not even JSON", schema_version=2)


def test_refusals_do_not_repeat_the_value() -> None:
    with pytest.raises(CompatibilityError) as caught:
        decode_state(Line, '{"sku":"x","price":"hunter2"}')
    assert "hunter2" not in caught.value.detail


def test_input_becomes_the_first_state() -> None:
    state = state_from_input(Line, {"sku": "x", "price": "1.50"})
    assert state == Line(sku="x", price=Decimal("1.50"))


@pytest.mark.parametrize(
    ("document", "path"),
    [({"sku": "x"}, "/price"), ({"sku": "x", "price": "1", "more": 1}, "/more"), ({"sku": 1, "price": "1"}, "/sku")],
)
def test_input_that_fails_the_schema_is_refused_with_its_path(document: dict[str, object], path: str) -> None:
    with pytest.raises(InputRefused) as caught:
        state_from_input(Line, document)
    assert caught.value.path == path


def test_absent_input_is_not_an_empty_one() -> None:
    with pytest.raises(InputRefused, match="NoneType"):
        state_from_input(Loose, None)
    assert state_from_input(Loose, {}) == Loose()


def test_input_that_is_not_json_is_refused_as_input() -> None:
    with pytest.raises(InputRefused) as caught:
        state_from_input(Loose, {"free": float("nan")})
    assert caught.value.path == "/free"

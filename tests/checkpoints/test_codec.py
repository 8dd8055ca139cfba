"""Strict JSON: what is refused, where, and that what is accepted comes back."""

from __future__ import annotations

import collections
import enum
import json
from decimal import Decimal
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableops.checkpoints import codec
from durableops.checkpoints.faults import MAX_INT
from durableops.errors import CompatibilityError, InputRefused, InputTooLarge, PayloadRefused

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=5)
    ),
    max_leaves=20,
)


class Point(NamedTuple):
    x: int


class Colour(enum.IntEnum):
    RED = 1


def refusal(value: object, **options: int) -> PayloadRefused:
    with pytest.raises(PayloadRefused) as caught:
        codec.dumps(value, what="result of step 'score'", **options)
    return caught.value


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@given(JSON_VALUES)
def test_plain_values_come_back_equal(value: object) -> None:
    assert codec.loads(codec.dumps(value, what="value")) == value


@given(JSON_VALUES)
def test_input_accepts_exactly_what_is_written(value: object) -> None:
    assert codec.parse_input(codec.dumps(value, what="value").encode()) == value


def test_text_is_compact_and_not_escaped() -> None:
    assert codec.dumps({"b": [1, 2.5, None], "a": "é"}, what="value") == '{"b":[1,2.5,null],"a":"é"}'


def test_tuples_are_written_as_lists() -> None:
    assert codec.dumps((1, ("a",)), what="value") == '[1,["a"]]'


# C091
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e308 * 10])
def test_numbers_json_does_not_have_are_refused_with_their_path(number: float) -> None:
    error = refusal({"ok": 1, "scores": [0.5, number]})

    assert error.path == "/scores/1"
    assert "result of step 'score' at /scores/1 is" in error.detail


# C091
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_input_with_such_a_number_is_refused_with_its_path(literal: str) -> None:
    with pytest.raises(InputRefused) as caught:
        codec.parse_input(f'{{"a": [1, {literal}]}}')

    assert caught.value.path == "/a/1"
    assert caught.value.http_status == 400


# C089
@pytest.mark.parametrize(("value", "path"), [({"t": "a\0b"}, "/t"), ({"a\0b": 1}, ""), ([["\0"]], "/0/0")])
def test_nul_is_refused_with_its_path(value: object, path: str) -> None:
    assert refusal(value).path == path
    with pytest.raises(InputRefused) as caught:
        codec.parse_input(json.dumps(value))
    assert caught.value.path == path
    assert "NUL" in caught.value.detail


def test_backslash_before_u0000_is_not_a_nul() -> None:
    value = {"pattern": "\\u0000"}
    assert codec.loads(codec.dumps(value, what="value")) == value


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["ok", "a\udc00b"]])
def test_lone_surrogates_are_refused(value: object) -> None:
    assert "surrogate" in refusal(value).detail
    with pytest.raises(InputRefused, match="surrogate"):
        codec.parse_input(json.dumps(value))


def test_input_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InputRefused, match="UTF-8"):
        codec.parse_input(b'"\xff"')
    with pytest.raises(InputRefused, match="UTF-8"):
        codec.parse_input('"\ud800"')


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 10**30])
def test_whole_numbers_beyond_two_to_the_53_are_refused(number: int) -> None:
    assert refusal({"n": number}).path == "/n"
    with pytest.raises(InputRefused) as caught:
        codec.parse_input(f'{{"n": {number}}}')
    assert caught.value.path == "/n"


def test_whole_numbers_up_to_two_to_the_53_come_back_exact() -> None:
    assert codec.loads(codec.dumps([2**53, -(2**53)], what="value")) == [2**53, -(2**53)]


def test_number_of_ten_thousand_digits_is_refused() -> None:
    with pytest.raises(InputRefused, match="thousands of digits"):
        codec.parse_input("9" * 10_000)


# C094
@pytest.mark.parametrize("levels", [65, 500, 20_000])
def test_deep_nesting_is_refused_without_recursion(levels: int) -> None:
    assert "deeper than 64 levels" in refusal(nested(levels)).detail
    with pytest.raises(InputRefused, match="deeper than 64 levels"):
        codec.parse_input("[" * levels + "]" * levels)
    with pytest.raises(InputRefused, match="deeper than 64 levels"):
        codec.parse_input('{"a":' * levels + "1" + "}" * levels)
    with pytest.raises(CompatibilityError, match="deeper than 64 levels"):
        codec.loads("[" * levels + "]" * levels)


# C094
def test_nesting_of_exactly_64_levels_is_accepted_everywhere() -> None:
    text = codec.dumps(nested(64), what="value")
    assert codec.loads(text) == codec.parse_input(text) == nested(64)


def test_brackets_in_texts_are_not_nesting() -> None:
    value = ["[{" * 100, '\\"[' * 100]
    assert codec.parse_input(codec.dumps(value, what="value")) == value


@pytest.mark.parametrize("hostile", ['"' + '\\"' * 200_000 + "[" * 100, "[" * 100 + '"' * 200_001, '"\\' + "[" * 70])
def test_unterminated_texts_are_refused_in_linear_time(hostile: str) -> None:
    with pytest.raises(InputRefused):
        codec.parse_input(hostile)


# C098
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (lambda: 1, "function"),
        ((each for each in [1]), "generator"),
        (Decimal("0.10"), "decimal.Decimal"),
        (b"x", "bytes"),
        ({1}, "set"),
        (Colour.RED, "Colour"),
        (collections.Counter(a=1), "collections.Counter"),
        (Point(1), "Point"),
        (ValueError("x"), "ValueError"),
    ],
)
def test_other_types_are_refused_by_name(value: object, kind: str) -> None:
    error = refusal({"rows": [0, value]})

    assert error.path == "/rows/1"
    assert kind in error.detail


# C098
def test_open_file_is_refused_by_name() -> None:
    with open(__file__) as handle:  # noqa: PTH123
        assert "TextIOWrapper" in refusal({"file": handle}).detail


# C098
def test_value_that_contains_itself_is_refused() -> None:
    value: dict[str, object] = {"a": 1}
    value["self"] = [value]
    assert "contains itself" in refusal(value).detail
    assert refusal(value).path == "/self/0"


def test_same_object_twice_is_not_a_cycle() -> None:
    shared = {"a": 1}
    assert codec.dumps([shared, {"b": shared}], what="value") == '[{"a":1},{"b":{"a":1}}]'


def test_small_objects_holding_each_other_many_times_are_refused_quickly() -> None:
    value: list[object] = [0]
    for _ in range(60):
        value = [value, value]
    assert "more values" in refusal(value, max_bytes=10_000).detail


# C092
@pytest.mark.parametrize("key", [1, None, True, Decimal(1), Colour.RED])
def test_keys_that_are_not_texts_are_refused(key: object) -> None:
    error = refusal({"table": {key: "a"}})

    assert error.path == "/table"
    assert type(key).__name__ in error.detail


def test_size_is_counted_in_bytes_and_refused_above_the_limit() -> None:
    assert codec.dumps("é" * 4, what="value", max_bytes=10)
    assert "has 12 bytes; at most 10" in refusal("é" * 5, max_bytes=10).detail
    assert codec.parse_input('"aaaa"', max_bytes=6) == "aaaa"
    with pytest.raises(InputTooLarge) as caught:
        codec.parse_input('"aaaaa"', max_bytes=6)
    assert caught.value.http_status == 413


def test_default_limit_is_one_mebibyte() -> None:
    assert codec.dumps("a" * (2**20 - 2), what="value")
    assert "at most 1048576" in refusal("a" * (2**20 - 1)).detail


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{'a': 1}", "\ufeff{}", "1 2", '{"a": 1, "a": 2}', "tru"])
def test_text_that_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(InputRefused):
        codec.parse_input(text)
    with pytest.raises(CompatibilityError):
        codec.loads(text)


def test_key_given_twice_is_named() -> None:
    with pytest.raises(InputRefused, match="'a' twice"):
        codec.parse_input('{"x": {"a": 1, "b": 2, "a": 2}}')


def test_path_escapes_what_json_pointers_escape() -> None:
    assert refusal({"a/b~c": {"\ud800": 1.0, "x": 2**60}}).path == "/a~1b~0c"
    assert refusal({"a/b~c": {"x": 2**60}}).path == "/a~1b~0c/x"


@given(JSON_VALUES)
def test_canonical_text_does_not_depend_on_order(value: object) -> None:
    reordered = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert codec.canonical(value) == codec.canonical(reordered)
    assert codec.hash_hex(codec.canonical(value)) == codec.hash_hex(codec.canonical(reordered))


def test_canonical_text_writes_equal_numbers_equally() -> None:
    assert codec.canonical({"b": 1.0, "a": (2.0, 2.5)}) == '{"a":[2,2.5],"b":1}'
    assert codec.canonical("v1.0") == '"v1.0"'


def test_canonical_refuses_what_cannot_be_stored() -> None:
    with pytest.raises(PayloadRefused, match="request at /x is nan"):
        codec.canonical({"x": float("nan")}, what="request")


# C097
@pytest.mark.parametrize("size", [256, 3_000, 8_000])
def test_keys_over_the_limit_are_refused(size: int) -> None:
    with pytest.raises(InputRefused, match=f"start key has {size} bytes; at most 255") as caught:
        codec.check_key("k" * size, what="start key")
    assert caught.value.http_status == 400


# C097
@pytest.mark.parametrize(
    "key",
    ["", " ", " k ", "k\n", "a\nb", "a\r\nX: y", "a\0b", "a\tb", "\x7f", "a\u2028b", "\ud800", "\u00a0k", "😀" * 255],
)
def test_odd_keys_are_refused(key: str) -> None:
    with pytest.raises(InputRefused):
        codec.check_key(key, what="start key")


@pytest.mark.parametrize("key", [None, 7, b"k"])
def test_keys_that_are_not_texts_are_refused_by_type(key: object) -> None:
    with pytest.raises(InputRefused, match=type(key).__name__):
        codec.check_key(key, what="start key")


# C097
def test_keys_are_kept_byte_for_byte() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    kept = {
        codec.check_key(key, what="start key") for key in ("K", "k", composed, decomposed, "../x", "a b", "k" * 255)
    }
    assert len(kept) == 7

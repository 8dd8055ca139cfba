"""Forms: what can be asked for is described as JSON and read by it; what cannot is refused where it is declared."""

from __future__ import annotations

import enum
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, field_validator
from pydantic import Field as Limit

from durableops.authoring import forms
from durableops.errors import Fatal, InputRefused


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


class Payment(BaseModel):
    amount: Annotated[Decimal, Limit(gt=0, le=500)]
    pieces: Annotated[int, Limit(ge=1, description="How many")]
    note: Annotated[str, Limit(max_length=20)] = ""
    until: date | None = None
    speed: Speed = Speed.SLOW
    how: Literal["cash", "card"]
    urgent: bool = False


GIVEN = {"amount": "12.50", "pieces": 2, "how": "card"}


def test_description_says_what_a_page_needs_and_is_plain_json():
    found = {one["name"]: one for one in forms.describe(Payment)}
    assert [one["kind"] for one in found.values()] == [
        "decimal", "integer", "text", "date", "choice", "choice", "boolean",
    ]  # fmt: skip
    assert (found["amount"]["more_than"], found["amount"]["at_most"]) == (0, 500)
    assert (found["pieces"]["hint"], found["how"]["options"]) == ("How many", ("cash", "card"))
    assert (found["note"]["required"], found["how"]["required"], found["until"]["nullable"]) == (False, True, True)


def test_what_was_given_is_read_with_its_defaults_and_fits_the_model():
    found = forms.read(forms.describe(Payment), GIVEN)
    assert found == GIVEN | {"note": "", "until": None, "speed": "slow", "urgent": False}
    assert Payment.model_validate(found).amount == Decimal("12.50")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"amount": "0"}, "/amount"), ({"amount": "500.01"}, "/amount"), ({"amount": "NaN"}, "/amount"),
        ({"amount": "1e999999999"}, "/amount"), ({"amount": "9" * 5000}, "/amount"), ({"amount": True}, "/amount"),
        ({"pieces": 0}, "/pieces"), ({"pieces": 1.5}, "/pieces"), ({"pieces": "2"}, "/pieces"),
        ({"pieces": 2**53 + 1}, "/pieces"), ({"pieces": None}, "/pieces"), ({"note": "x" * 21}, "/note"),
        ({"note": "a\0b"}, "/note"), ({"note": 7}, "/note"), ({"until": "soon"}, "/until"), ({"until": 5}, "/until"),
        ({"speed": "medium"}, "/speed"), ({"how": None}, "/how"), ({"urgent": "yes"}, "/urgent"),
        ({"secret": 1}, "/secret"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_the_name_of_its_field(change, path):
    with pytest.raises(InputRefused) as refused:
        forms.read(forms.describe(Payment), GIVEN | change)
    assert refused.value.path == path


def test_what_is_missing_is_named():
    with pytest.raises(InputRefused, match="How is missing"):
        forms.read(forms.describe(Payment), {"amount": "1", "pieces": 1})


def test_names_and_types_are_a_form_too():
    fields = forms.describe({"rows": int, "note": (str, "none")})
    assert forms.read(fields, {"rows": 3}) == {"rows": 3, "note": "none"}


def test_what_was_typed_becomes_values_and_what_stayed_empty_is_left_out():
    texts = {"in.amount": "12.50", "in.pieces": "2", "in.note": " ", "in.urgent": "on", "in.how": "card", "x": "y"}
    assert forms.typed(forms.describe(Payment), texts) == {
        "amount": "12.50", "pieces": 2, "urgent": True, "how": "card",
    }  # fmt: skip
    with pytest.raises(InputRefused, match="a whole number"):
        forms.read(forms.describe({"n": int}), forms.typed(forms.describe({"n": int}), {"in.n": "many"}))


class Nested(BaseModel):
    inner: Payment


class Listed(BaseModel):
    names: list[str]


class Mixed(BaseModel):
    one: int | str


class Checking(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def odd(cls, value: int) -> int:
        return value


@pytest.mark.parametrize(
    "form", [Nested, Listed, Mixed, Checking, {"n": Any}, {"a b": int}, ["n"], int, {"n": object}], ids=str
)
def test_form_that_no_page_could_ask_for_is_refused_where_it_is_declared(form):
    with pytest.raises(Fatal):
        forms.describe(form)

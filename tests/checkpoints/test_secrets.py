"""Declared secrets in stored documents: encrypted field by field, opened only where they were declared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from durableops import DefinitionError, Secret, State, sealing
from durableops.authoring.schema import describe_state
from durableops.checkpoints import secrets
from durableops.checkpoints.states import decode_state, encode_state, state_from_input
from durableops.errors import CompatibilityError, InputRefused
from durableops.masking import MASK, mask


class Account(State):
    name: str
    token: Secret = ""


def test_secret_field_is_encrypted_in_the_stored_state_and_comes_back(settings):
    text = encode_state(Account(name="ann", token="geheim1"))
    assert "geheim1" not in text
    assert json.loads(text)["name"] == "ann"
    assert decode_state(Account, text) == Account(name="ann", token="geheim1")
    assert mask(json.loads(text)) == {"name": "ann", "token": MASK}


def test_empty_secret_stays_empty_and_old_plain_bytes_are_read():
    assert json.loads(encode_state(Account(name="ann"))) == {"name": "ann", "token": ""}
    assert decode_state(Account, '{"name":"ann","token":"plain"}').token == "plain"


def test_secret_that_no_key_opens_parks_the_run_instead_of_guessing(settings):
    text = encode_state(Account(name="ann", token="geheim1"))
    settings.DURABLEOPS_ENCRYPTION_KEYS = [sealing.new_key()]
    with pytest.raises(CompatibilityError, match="/token is encrypted") as refused:
        decode_state(Account, text)
    assert refused.value.path == "/token"


def test_sealed_value_from_outside_is_not_opened():
    stolen = json.loads(encode_state(Account(name="ann", token="geheim1")))["token"]
    with pytest.raises(InputRefused, match="/token"):
        state_from_input(Account, {"name": "eve", "token": stolen})


def test_document_without_declared_fields_is_left_alone():
    text = json.dumps({"a": {"$sealed": "x"}})
    assert secrets.open_fields(text, ()) == text
    assert secrets.open_fields(text, ["b"]) == json.dumps(json.loads(text), separators=(",", ":"))
    assert secrets.seal_fields("[1]", ["a"]) == "[1]"
    assert secrets.open_fields("[1]", ["a"]) == "[1]"


def test_any_json_value_may_be_secret_in_a_result():
    document: dict[str, Any] = {"keys": [1, {"a": None}], "n": 1}
    sealed = secrets.seal_fields(json.dumps(document), ["keys"])
    assert json.loads(secrets.open_fields(sealed, ["keys"])) == document


def test_secret_belongs_to_a_field_of_the_states_own():
    class Inner(State):
        token: Secret

    class Outer(State):
        inner: Inner

    class Listed(State):
        tokens: list[Secret]

    for wrong in (Outer, Listed):
        with pytest.raises(DefinitionError, match="is Secret"):
            describe_state(wrong)
    assert describe_state(Account) == {"fields": {"name": "str", "token": "str"}}

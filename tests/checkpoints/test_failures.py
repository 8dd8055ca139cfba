"""Errors are written down as class, message and code, the same wherever they were raised."""

from __future__ import annotations

import pytest

from durableops.checkpoints import codec
from durableops.checkpoints.failures import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    StoredError,
    describe_error,
    describe_traceback,
    safe_text,
)
from durableops.errors import CompatibilityError, PayloadRefused, StepTimeout


class NeedsArguments(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def raised_elsewhere(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


# C098
def test_exception_with_required_arguments_is_stored_and_read_without_its_class() -> None:
    stored = describe_error(NeedsArguments(1, 2))
    text = codec.dumps(stored.as_json(), what="error")

    assert StoredError.from_json(codec.loads(text)) == stored
    assert stored.type.endswith(".NeedsArguments")
    assert str(stored).endswith("NeedsArguments: 1 and 2")


# C112
def test_same_error_from_another_line_has_the_same_record_and_fingerprint() -> None:
    here, there = raised(ValueError("no such row")), raised_elsewhere(ValueError("no such row"))

    assert describe_traceback(here) != describe_traceback(there)
    assert describe_error(here) == describe_error(there)
    assert describe_error(here).fingerprint == describe_error(there).fingerprint
    assert describe_error(ValueError("other")).fingerprint != describe_error(here).fingerprint


# C112
def test_record_holds_no_path_or_line() -> None:
    assert describe_error(raised(ValueError("no such row"))).as_json() == {
        "type": "builtins.ValueError",
        "message": "no such row",
        "code": "",
    }


def test_code_of_our_own_errors_and_signals_is_kept() -> None:
    assert describe_error(PayloadRefused("x", path="/a")).code == "payload.refused"
    assert describe_error(StepTimeout("x")).code == "signal.step_timeout"


# C089
def test_nul_and_surrogates_in_an_error_are_stored_escaped() -> None:
    error = raised(ValueError("a\0b \ud800"))

    assert describe_error(error).message == r"a\x00b \ud800"
    assert codec.dumps([describe_error(error).as_json(), describe_traceback(error)], what="error")


def test_error_whose_text_cannot_be_read_is_still_stored() -> None:
    assert describe_error(Unreadable()).message == "(its text cannot be read: RuntimeError)"
    assert "Unreadable" in describe_traceback(raised(Unreadable()))


def test_long_texts_are_cut_with_a_mark() -> None:
    error = raised(ValueError("x" * 100_000))

    assert describe_error(error).message.endswith(f"[... {100_000 - MAX_MESSAGE_CHARACTERS} characters left out]")
    trace = describe_traceback(error)
    assert trace.startswith("[... ")
    assert len(trace) < MAX_TRACE_CHARACTERS + 100


def test_ordinary_text_is_left_alone() -> None:
    assert safe_text("é 😀 \\x00") == "é 😀 \\x00"


@pytest.mark.parametrize("document", [None, [], {}, {"type": "a"}, {"type": "a", "message": None, "code": ""}])
def test_record_of_another_shape_is_refused(document: object) -> None:
    with pytest.raises(CompatibilityError):
        StoredError.from_json(document)


def test_credentials_in_a_message_or_traceback_are_masked_before_they_are_stored():  # C146
    def fail():
        raise ValueError("POST https://user:hunter22@desk.example/x failed: Authorization: Bearer sk_test_12345678")

    try:
        fail()
    except ValueError as error:
        stored, trace = describe_error(error), describe_traceback(error)

    for text in (stored.message, trace.split("ValueError", 1)[1]):
        assert "hunter22" not in text
        assert "sk_test_12345678" not in text
        assert "desk.example" in text

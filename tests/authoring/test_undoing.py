"""What tools say about undoing them: mistakes are refused with their place, and requests are made of the effect."""

from __future__ import annotations

from typing import Any

import pytest

from durableops import DoneEffect
from durableops.authoring import registry
from durableops.authoring.undoing import request_to_undo
from tests.authoring.conftest import Author

REFUND = """
    @tool(safety="keyed")
    def refund(call, *, downstream_id: str): ...

"""
EFFECT = DoneEffect(
    tool="charge", resource="r", author_key="k", key="key", downstream_id="d7", result={"id": "d7", "seat": 3},
    request={"amount": 5},
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("compensate=len", "give a function decorated with @tool"),
        ("compensate=look", "which undoes nothing"),
        ("compensate=seat", "also needs seat; make its request with undo_request"),
        ("undo_request=lambda effect: {}", "undo_request without compensate"),
        ("four_eyes=True", "asks for four eyes and says nowhere how"),
        ("instructions=7", "no text of at most 4000"),
        ("instructions='x' * 5000", "no text of at most 4000"),
    ],
)
def test_mistakes(author: Author, options: str, why: str) -> None:
    message = author.mistake(f"""
        @tool(safety="read")
        def look(call): ...

        @tool(safety="keyed")
        def seat(call, *, seat: int): ...

        @tool(safety="keyed", {options})  # here
        def charge(call): ...
    """)
    assert message.startswith(author.place("here"))
    assert why in message


def test_reading_is_not_undone(author: Author) -> None:
    message = author.mistake(
        REFUND
        + """
    @tool(safety="read", compensate=refund)
    def look(call): ...
"""
    )
    assert "only reads; there is nothing to compensate" in message


def test_workflow_cannot_take_the_name_of_a_built_in_one(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="durableops.mine", version=1, state=Empty)
        class Mine:
            @step
            def a(run): ...
    """)
    assert "those of the built-in workflows" in message


def asked(author: Author, options: str, undo: str) -> dict[str, Any]:
    author.write(f"""
        @tool(safety="keyed")
        def undo(call, {undo}): ...

        @tool(safety="keyed", compensate=undo{options})
        def charge(call): ...
    """)
    charge = registry.tool("charge")
    assert charge is not None
    return request_to_undo(charge, EFFECT)


@pytest.mark.parametrize(
    ("undo", "request_"),
    [
        ("*, downstream_id: str", {"downstream_id": "d7"}),
        ("*, result: dict", {"result": EFFECT.result}),
        ("*, downstream_id: str = '', other: int = 1", {"downstream_id": "d7"}),
        ("**anything: Any", {"downstream_id": "d7", "result": EFFECT.result}),
        ("*, other: int = 1", {}),
    ],
)
def test_undoing_tool_gets_what_it_names_of_the_effect(author: Author, undo: str, request_: dict[str, Any]) -> None:
    assert asked(author, "", undo) == request_


def test_author_makes_the_request_of_the_effect(author: Author) -> None:
    made = asked(author, ", undo_request=lambda effect: {'seat': effect.result['seat']}", "*, seat: int")
    assert made == {"seat": 3}

"""Slots and keys: functions of what the author named, never of time, chance, position or process."""

from __future__ import annotations

import string
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durableops.authoring import registry
from durableops.authoring.decorators import tool
from durableops.effects.idempotency import KEY_CHARACTERS, Prepared, prepare, summarize
from durableops.errors import DurableOpsError

pytestmark = pytest.mark.engine

RUN = UUID("01900000-0000-7000-8000-000000000001")
OTHER = UUID("01900000-0000-7000-8000-000000000002")

with registry.isolated():

    @tool(safety="keyed", name="send")
    def send(call, **request: Any): ...

    @tool(safety="keyed", name="invoice", scope="tenant")
    def invoice(call, **request: Any): ...

    @tool(safety="read", name="look")
    def look(call, **request: Any): ...

    @tool(safety="keyed", name="order", resource="order_id")
    def order(call, *, order_id: str, note: str = ""): ...


def prepared(made: Any = send, request: dict[str, Any] | None = None, **over: Any) -> Prepared:
    values: dict[str, Any] = {
        "run_id": RUN,
        "tenant_id": 1,
        "step_id": "a",
        "resource": "r",
        "author_key": "",
        "max_bytes": 2**20,
    } | over
    return prepare(made, {} if request is None else request, **values)


names = st.text(string.ascii_letters, min_size=1, max_size=8).filter(lambda n: n not in ("call", "resource", "key"))
scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("abcé😀 ", max_size=8) | st.floats(-1e9, 1e9)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
requests = st.dictionaries(names, values, max_size=4)


@given(requests)
def test_same_request_gives_the_same_slot_and_key(request):  # C032
    again = dict(reversed(list(request.items())))
    assert prepared(request=request).key == prepared(request=again).key
    assert prepared(request=request).slot == prepared(request=again).slot


@given(requests, requests)
def test_slot_does_not_depend_on_the_request_and_the_key_does(one, two):  # C032
    first, second = prepared(request=one), prepared(request=two)
    assert first.slot == second.slot
    assert (first.key == second.key) == (first.request_hash == second.request_hash)


@pytest.mark.parametrize(
    "over",
    [{"run_id": OTHER}, {"step_id": "b"}, {"resource": "s"}, {"author_key": "k"}],
    ids=["run", "step", "resource", "author's key"],
)
def test_slot_is_told_apart_by(over):
    assert prepared(**over).slot != prepared().slot
    assert prepared(**over).key != prepared().key


def test_two_tools_have_slots_of_their_own():
    assert prepared(send).slot != prepared(look).slot


def test_neighbouring_names_do_not_run_together():
    assert prepared(resource="a", author_key="bc").slot != prepared(resource="ab", author_key="c").slot
    assert prepared(resource='a","b').slot != prepared(resource="a", author_key="b").slot


def test_tenant_wide_slot_drops_run_and_step_and_keeps_the_tenant():
    assert prepared(invoice).slot == prepared(invoice, run_id=OTHER, step_id="b").slot
    assert prepared(invoice).slot != prepared(invoice, tenant_id=2).slot
    assert prepared(invoice).slot != prepared(send).slot


def test_read_without_a_resource_stands_for_its_request():
    one, two = prepared(look, {"q": 1}, resource=""), prepared(look, {"q": 2}, resource="")
    assert one.slot != two.slot
    assert one.slot == prepared(look, {"q": 1}, resource="").slot


def test_resource_may_be_an_argument():
    found = prepared(order, {"order_id": "7", "note": "x"}, resource="")
    assert found.resource == "7"
    assert found.slot == prepared(order, {"order_id": "7", "note": "y"}, resource="").slot


def test_key_is_short_and_plain_enough_for_a_header():
    key = prepared().key
    assert len(key) == KEY_CHARACTERS
    assert set(key) <= set(string.hexdigits.lower())


def test_key_is_the_same_in_every_process_and_release():
    # Written down: a release that changed it would send everything again that is under way.
    assert prepared(request={"title": "t", "n": 1}).key == "0af48ea151b7c95f2838ea06f32845787db6b9007509f6ca"
    assert (
        prepared(request={"title": "t", "n": 1}).slot
        == "edda9f46519a7ed323ed313f7e71bc99c852e558afafb85a2a49c7fc3d482484"
    )


@pytest.mark.parametrize(
    "over",
    [{"resource": ""}, {"resource": "a\0"}, {"resource": "x" * 256}, {"author_key": "a\n"}, {"author_key": " "}],
    ids=["no resource", "nul", "long", "newline", "blank"],
)
def test_name_that_cannot_be_one_is_refused(over):
    with pytest.raises(DurableOpsError):
        prepared(**over)


@pytest.mark.parametrize(
    "request_",
    [pytest.param({"a": object()}, id="object"), {"a": float("nan")}, {"a": "\ud800"}, {"a": 2**60}],
    ids=repr,
)
def test_request_that_is_not_json_is_refused(request_):
    with pytest.raises(DurableOpsError):
        prepared(request=request_)


def test_argument_the_tool_does_not_take_is_refused():
    with pytest.raises(DurableOpsError):
        prepared(order, {"order_id": "7", "colour": "red"}, resource="")


def test_request_over_the_limit_is_refused():
    with pytest.raises(DurableOpsError):
        prepared(request={"a": "x" * 200}, max_bytes=100)


@given(requests)
def test_summary_is_small_json_and_keeps_every_name(request):
    import json

    found = summarize(request)
    assert set(found) == set(request)
    assert len(json.dumps(found)) <= 100 + 1400 * len(request)


@pytest.mark.parametrize("name", ["password", "api_key", "apikey", "Authorization", "access_token", "client_secret"])
def test_summary_shows_no_secret(name):
    assert "hunter22!" not in str(summarize({name: "hunter22!"}))

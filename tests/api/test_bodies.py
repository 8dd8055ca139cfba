from __future__ import annotations

import io
import json

import pytest
from django.test import RequestFactory

from durableops.api.bodies import largest_body
from durableops.api.door import door
from durableops.conf import override_conf
from runs.models import InboundEvent, Run
from tests.api.clients import read

DEEP = 20_000


def order(given: str) -> bytes:
    return b'{"workflow":"order","input":{"customer":' + given.encode("utf-8", "surrogatepass") + b"}}"


HOSTILE = {
    "NUL": (order('"a\\u0000b"'), "/input/customer"),
    "lone surrogate": (order('"\\ud800"'), "/input/customer"),
    "raw surrogate": (order('"\ud800"'), None),
    "NaN": (order("NaN"), "/input/customer"),
    "Infinity": (order("[1, -Infinity]"), "/input/customer/1"),
    "overflowing number": (order("1e400"), "/input/customer"),
    "beyond 2^53": (order("9007199254740993"), "/input/customer"),
    "thousands of digits": (order("9" * 6000), None),
    "deep list": (order("[" * DEEP + "]" * DEEP), None),
    "deep object": (order('{"a":' * DEEP + "1" + "}" * DEEP), None),
    "500 levels": (order('{"a":' * 500 + "1" + "}" * 500), None),
    "unclosed depth": (order("[" * DEEP), None),
    "NUL in a key": (order('{"a\\u0000": 1}'), "/input/customer"),
    "key twice": (b'{"workflow":"order","workflow":"other","input":{}}', None),
    "key twice below": (order('{"a":1,"a":2}'), None),
    "not UTF-8": (b'{"workflow":"\xff\xfe"}', None),
    "UTF-16": ('{"workflow":"order"}'.encode("utf-16"), None),
    "byte order mark": (b"\xef\xbb\xbf{}", None),
    "half a document": (b'{"workflow":"or', None),
    "no JSON": (b"workflow=order", None),
    "two documents": (b"{}{}", None),
    "a list": (b"[]", None),
    "a text": (b'"order"', None),
    "null": (b"null", None),
    "nothing": (b"", None),
    "spaces": (b"   ", None),
    "object as workflow": (b'{"workflow":{"a":1}}', "/workflow"),
    "input as list": (b'{"workflow":"order","input":[]}', "/input"),
    "prototype": (b'{"workflow":"order","__proto__":{}}', "/__proto__"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_body_is_a_400_with_a_reason_and_writes_nothing(caller, name):
    body, path = HOSTILE[name]
    response = caller.post("/runs", body)
    found = read(response)
    assert response.status_code == 400, found
    assert found["code"] == "input.refused"
    assert found["detail"].endswith(".")
    if path is not None:
        assert found["path"] == path
    assert not Run.objects.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_payload_of_an_event_is_a_400_too(caller, name):
    body, _path = HOSTILE[name]
    response = caller.post("/events", body.replace(b'"workflow"', b'"name"').replace(b'"input"', b'"payload"'))
    if response.status_code == 201:
        # An event's payload may be any JSON: a list, an object.
        assert name == "input as list"
        return
    assert response.status_code == 400
    assert not InboundEvent.objects.exists()


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "a/b"]
)
def test_body_of_another_type_is_a_415(caller, content_type):
    response = caller.post("/runs", b'{"workflow":"order"}', content_type=content_type)
    assert (response.status_code, read(response)["code"]) == (415, "request.wrong_media_type")


def test_charset_other_than_utf_8_is_a_415_and_utf_8_is_taken(caller):
    body = {"workflow": "order", "input": {"customer": "ann"}}
    assert caller.post("/runs", body, content_type="application/json; charset=latin-1").status_code == 415
    assert caller.post("/runs", body, content_type="application/json; charset=UTF-8").status_code == 201


def test_input_just_over_the_limit_is_a_413_or_400_with_its_size(caller):
    with override_conf(payload_max_bytes=1000):
        response = caller.start({"customer": "x" * 1100})
        assert response.status_code in (400, 413)
        assert "1000" in read(response)["detail"]
        assert caller.start({"customer": "x" * 900}).status_code == 201


def test_five_megabytes_are_refused_with_413(caller):
    response = caller.post("/runs", order(json.dumps("x" * 5_000_000)))
    assert (response.status_code, read(response)["code"]) == (413, "input.too_large")
    assert not Run.objects.exists()


class Unread(io.RawIOBase):
    def read(self, size=-1):
        raise AssertionError("the body was read")

    def readinto(self, buffer):
        raise AssertionError("the body was read")


@pytest.mark.parametrize(
    ("length", "status"),
    [("5000000", 413), ("9" * 30, 413), ("9" * 10_000, 413), ("-1", 400), ("many", 400), ("١", 400)],
)
def test_body_is_refused_by_its_announced_length_before_it_is_read(length, status):
    request = RequestFactory().post("/api/v1/runs")
    request.META["CONTENT_LENGTH"] = length
    request._stream = Unread()  # type: ignore[assignment]

    def view(request):
        raise AssertionError("the view was called")

    assert door(view)(request).status_code == status


def test_body_without_a_length_is_a_411(caller):
    response = caller.post("/runs", b"", **{"Transfer-Encoding": "chunked"})
    assert (response.status_code, read(response)["code"]) == (411, "request.length_required")


def test_the_door_leaves_room_for_the_largest_input():
    with override_conf(payload_max_bytes=4 * 2**20):
        assert largest_body() > 4 * 2**20


GOOD_KEYS = ["k", "K", "é", "e\u0301", "🙂" * 63, "../x", "a b", "x" * 255, "%00", "' OR 1=1 --"]


def test_keys_are_compared_byte_by_byte(caller):
    ids = {read(caller.start(key=key))["id"] for key in GOOD_KEYS}
    assert len(ids) == len(GOOD_KEYS)
    for key in GOOD_KEYS:
        again = caller.start(key=key)
        assert again.status_code == 200
        assert read(again)["start_key"] == key


@pytest.mark.parametrize(
    "key",
    ["", " ", " k", "k ", "a\nb", "a\r\nSet-Cookie: x", "a\0b", "a\tb", "x" * 256, "x" * 10_000, "🙂" * 64, "a\u2028b"],
)
@pytest.mark.parametrize("path", ["/runs", "/events"])
def test_key_that_cannot_be_one_is_a_400_that_names_the_header(caller, path, key):
    body = {"workflow": "order", "input": {"customer": "ann"}} if path == "/runs" else {"name": "paid"}
    response = caller.post(path, body, key=key)
    assert response.status_code == 400
    assert (read(response)["in"], read(response)["path"]) == ("header", "Idempotency-Key")
    assert not Run.objects.exists()


@pytest.mark.parametrize("raw", ["\xff", "\ud800", "☃"])
def test_key_that_is_not_utf_8_is_a_400(caller, raw):
    response = caller.post("/runs", {"workflow": "order"}, **{"Idempotency-Key": raw})
    assert response.status_code == 400
    assert "UTF-8" in read(response)["detail"]


@pytest.mark.parametrize("field", ["name", "correlation"])
@pytest.mark.parametrize("text", ["a\nb", " a", "x" * 3000, "x" * 8000])
def test_event_names_and_correlations_that_no_index_could_hold_are_a_400(caller, field, text):
    response = caller.post("/events", {"name": "paid", field: text})
    assert response.status_code == 400
    assert not InboundEvent.objects.exists()


@pytest.mark.parametrize(
    "labels", [{"": "x"}, {"a": ""}, {"a\nb": "x"}, {"a": "x" * 300}, {str(n): "x" for n in range(21)}]
)
def test_labels_that_cannot_be_kept_are_a_400(caller, labels):
    assert caller.start(labels=labels).status_code == 400
    assert not Run.objects.exists()

"""Misbehaviour on request: the pure matching, then each kind over real HTTP."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from examples.serving.faults import FaultBook, read_fault
from examples.serving.messages import BadRequest
from examples.ticket_desk.messages import Arrival
from tests.examples.desks import DeskClient
from tests.waiting import eventually


def arrival(*, key: str = "k", title: str = "t") -> Arrival:
    return Arrival(key=key, body_hash="", received_at=0.0, reference="A", title=title, details={})


def struck(book: FaultBook, *arrivals: Arrival) -> list[str]:
    faults = [book.strike(one) for one in arrivals]
    return [fault.wanted.kind if fault else "" for fault in faults]


def test_a_fault_strikes_once_unless_told():
    book = FaultBook()
    book.add(read_fault({"kind": "error"}))

    assert struck(book, arrival(), arrival()) == ["error", ""]


def test_a_fault_strikes_from_the_nth_match_on_and_count_times():
    book = FaultBook()
    book.add(read_fault({"kind": "error", "nth": 2, "count": 2}))

    assert struck(book, *[arrival()] * 5) == ["", "error", "error", "", ""]


def test_a_fault_strikes_only_its_key():
    book = FaultBook()
    book.add(read_fault({"kind": "drop", "key": "k2"}))

    assert struck(book, arrival(key="k1"), arrival(key="k2")) == ["", "drop"]


def test_a_fault_strikes_only_titles_of_its_pattern():
    book = FaultBook()
    book.add(read_fault({"kind": "drop", "title": "reserve *"}))

    assert struck(book, arrival(title="ship 7"), arrival(title="reserve 7")) == ["", "drop"]


def test_the_oldest_fault_strikes_first_and_the_others_count_along():
    book = FaultBook()
    book.add(read_fault({"kind": "error"}))
    book.add(read_fault({"kind": "drop", "nth": 2}))

    assert struck(book, arrival(), arrival()) == ["error", "drop"]


def test_a_released_fault_strikes_no_more():
    book = FaultBook()
    fault = book.add(read_fault({"kind": "hold", "count": 5}))
    book.release(fault.id)

    assert struck(book, arrival()) == [""]


@pytest.mark.parametrize(
    "fields",
    [
        [],
        {},
        {"kind": "explode"},
        {"kind": "drop", "when": "later"},
        {"kind": "drop", "nth": 0},
        {"kind": "drop", "count": True},
        {"kind": "delay", "seconds": -1},
        {"kind": "delay", "seconds": math.nan},
        {"kind": "delay", "seconds": "1"},
        {"kind": "drop", "key": 3},
        {"kind": "drop", "colour": "red"},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fields):
    with pytest.raises(BadRequest):
        read_fault(fields)


def test_a_refused_fault_is_answered_with_400(desk: DeskClient):
    assert desk.http.post("/faults", json={"kind": "explode"}).status_code == 400
    assert desk.http.post("/faults", content=b"{").status_code == 400


def test_a_timeout_does_the_work_and_the_retry_hears_of_it(desk: DeskClient):
    fault = desk.fault("timeout", seconds=60)

    with pytest.raises(httpx.ReadTimeout):
        desk.open(key="k1", timeout=0.2)
    assert desk.open(key="k1").headers["Idempotency-Replayed"] == "true"
    assert len(desk.tickets()) == 1
    desk.http.post(f"/faults/{fault}/release")
    eventually(lambda: desk.requests()[0]["client_gone"], hoping_for="the desk to notice that nobody listens")


def test_a_timeout_before_the_work_does_nothing_however_long_one_waits(desk: DeskClient):
    fault = desk.fault("timeout", when="before", seconds=60)

    with pytest.raises(httpx.ReadTimeout):
        desk.open(key="k1", timeout=0.2)
    desk.http.post(f"/faults/{fault}/release")
    eventually(lambda: desk.outcomes() == ["dropped"], hoping_for="the desk to give it up")
    assert desk.tickets() == []
    assert desk.open(key="k1").status_code == 201


def test_a_dropped_connection_did_the_work_by_default(desk: DeskClient):
    desk.fault("drop")

    with pytest.raises(httpx.RemoteProtocolError):
        desk.open(key="k1")
    assert len(desk.tickets()) == 1
    assert desk.open(key="k1").headers["Idempotency-Replayed"] == "true"


def test_a_connection_dropped_before_the_work_leaves_the_key_free(desk: DeskClient):
    desk.fault("drop", when="before")

    with pytest.raises(httpx.RemoteProtocolError):
        desk.open(key="k1")
    assert desk.tickets() == []
    assert desk.open(key="k1").status_code == 201
    assert desk.outcomes() == ["dropped", "created"]


def test_a_limited_request_is_told_when_to_come_back(desk: DeskClient):
    desk.fault("limit", retry_after=7)

    answer = desk.open(key="k1")

    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert desk.open(key="k1").status_code == 201


@pytest.mark.parametrize(("when", "tickets"), [("before", 0), ("after", 1)])
def test_an_error_may_hide_that_the_work_was_done(desk: DeskClient, when: str, tickets: int):
    desk.fault("error", when=when)

    assert desk.open(key="k1").status_code == 500
    assert len(desk.tickets()) == tickets
    assert desk.open(key="k1").status_code == 201
    assert len(desk.tickets()) == 1


def test_a_delay_comes_before_the_work(desk: DeskClient):
    desk.fault("delay", seconds=0.2)
    began = time.monotonic()

    assert desk.open(key="k1").status_code == 201
    assert time.monotonic() - began >= 0.2


def test_a_slow_answer_arrives_whole(desk: DeskClient):
    desk.fault("slow", seconds=0.4)
    began = time.monotonic()

    assert desk.open("A-9", key="k1").json()["reference"] == "A-9"
    assert time.monotonic() - began >= 0.3


def test_a_held_request_has_done_its_work_and_names_its_key(desk: DeskClient):
    fault = desk.fault("hold")
    with ThreadPoolExecutor() as pool:
        held = pool.submit(desk.open, key="k1")
        eventually(lambda: desk.faults()[0]["holding"] == 1, hoping_for="a held request")

        assert desk.faults()[0]["keys"] == ["k1"]
        assert len(desk.tickets()) == 1
        assert desk.open(key="k1").headers["Idempotency-Replayed"] == "true"
        desk.http.post(f"/faults/{fault}/release")
        assert held.result().status_code == 201


def test_deleting_the_faults_lets_everything_go(desk: DeskClient):
    desk.fault("hold")
    with ThreadPoolExecutor() as pool:
        held = pool.submit(desk.open, key="k1")
        eventually(lambda: desk.faults()[0]["holding"] == 1, hoping_for="a held request")
        desk.http.delete("/faults")

        assert held.result().status_code == 201
    assert desk.faults() == []

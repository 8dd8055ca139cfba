"""The ledger as its clients see it, over real HTTP: it books what it is sent, and forgets who sent it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.examples.desks import LedgerClient, running_ledger
from tests.waiting import eventually


def is_refused(url: str) -> bool:
    try:
        return not httpx.get(f"{url}/stats").is_success
    except httpx.TransportError:  # reset, if it was waiting to be accepted
        return True


def test_an_entry_is_booked(ledger: LedgerClient):
    answer = ledger.post("invoice 17", 11900)

    assert answer.status_code == 201
    assert answer.json() == {"id": "E-1", "account": "4400", "amount": 11900, "text": "invoice 17", "reverses": None}
    assert ledger.stats()["balances"] == {"4400": 11900}


def test_what_is_sent_twice_is_booked_twice_whatever_key_it_carries(ledger: LedgerClient):
    first, second = ledger.post(key="k1"), ledger.post(key="k1")

    assert (first.json()["id"], second.json()["id"]) == ("E-1", "E-2")
    assert ledger.stats()["entries_beyond_the_first_of_a_text"] == 1
    assert [row["key"] for row in ledger.requests()] == ["k1", "k1"]
    assert ledger.stats()["balances"] == {"4400": 23800}


def test_a_reversal_books_the_opposite_and_names_what_it_reverses(ledger: LedgerClient):
    ledger.post("invoice 17", 11900)

    answer = ledger.reverse("E-1", "reversal of invoice 17")

    assert (answer.json()["amount"], answer.json()["reverses"]) == (-11900, "E-1")
    assert ledger.stats()["balances"] == {"4400": 0}


def test_a_reversal_that_is_sent_twice_is_booked_twice(ledger: LedgerClient):
    ledger.post()
    ledger.reverse("E-1")
    ledger.reverse("E-1")

    assert ledger.stats()["balances"] == {"4400": -11900}


def test_what_does_not_exist_cannot_be_reversed(ledger: LedgerClient):
    assert ledger.reverse("E-7").status_code == 404
    assert ledger.reverse("seven").status_code == 400
    assert ledger.entries() == []
    assert ledger.outcomes() == ["unknown"]


def test_entries_are_found_by_their_text_newest_first(ledger: LedgerClient):
    for text in ("invoice 17", "invoice 18", "invoice 17"):
        ledger.post(text)

    assert ledger.find("invoice 17") == ["E-3", "E-1"]
    assert ledger.find("invoice") == []
    assert ledger.outcomes()[-2:] == ["found", "found"]
    assert ledger.http.get("/search").status_code == 400


def test_an_accepted_entry_may_be_answered_by_a_dropped_connection(ledger: LedgerClient):
    ledger.fault("drop", title="invoice 17")

    with pytest.raises(httpx.RemoteProtocolError):
        ledger.post("invoice 17")

    assert ledger.find("invoice 17") == ["E-1"]
    assert ledger.outcomes() == ["booked", "found"]


def test_a_connection_dropped_before_the_work_booked_nothing_and_looks_the_same(ledger: LedgerClient):
    ledger.fault("drop", when="before")

    with pytest.raises(httpx.RemoteProtocolError):
        ledger.post()

    assert ledger.entries() == []


def test_a_refused_entry_was_not_booked(ledger: LedgerClient):
    ledger.fault("refuse")

    answer = ledger.post()

    assert answer.status_code == 422
    assert "asking again changes nothing" in answer.json()["detail"]
    assert (ledger.entries(), ledger.outcomes()) == ([], ["refused"])
    assert ledger.http.post("/faults", json={"kind": "refuse", "when": "after"}).status_code == 400


def test_a_slow_answer_is_the_answer(ledger: LedgerClient):
    ledger.fault("slow", seconds=0.3)

    assert ledger.post().json()["id"] == "E-1"


def test_a_ledger_that_is_down_refuses_connections_cuts_off_what_it_holds_and_comes_back(ledger: LedgerClient):
    ledger.fault("hold", when="before")
    with ThreadPoolExecutor() as pool:
        held = pool.submit(ledger.post)
        eventually(lambda: ledger.faults()[0]["holding"] == 1, hoping_for="a held request")

        assert httpx.post(f"{ledger.url}/down", json={"seconds": 1}).status_code == 202
        eventually(lambda: is_refused(ledger.url), hoping_for="connections to be refused")
        with pytest.raises(httpx.TransportError):
            held.result()
    eventually(lambda: not is_refused(ledger.url), hoping_for="the ledger to come back")
    assert ledger.post().status_code == 201


@pytest.mark.parametrize("seconds", [0, -1, True, "1", None, 10**9])
def test_an_outage_that_makes_no_sense_is_refused(ledger: LedgerClient, seconds: object):
    assert ledger.http.post("/down", json={"seconds": seconds}).status_code == 400
    assert ledger.post().status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"account": "4400", "text": "t"}',
        b'{"account": "4400", "amount": 0, "text": "t"}',
        b'{"account": "4400", "amount": true, "text": "t"}',
        b'{"account": "4400", "amount": 1.5, "text": "t"}',
        b'{"account": "4400", "amount": 1000000000001, "text": "t"}',
        b'{"account": "", "amount": 1, "text": "t"}',
        b'{"account": "4400", "amount": 1}',
    ],
)
def test_a_bad_entry_is_answered_with_400_and_books_nothing(ledger: LedgerClient, body: bytes):
    assert ledger.http.post("/entries", content=body).status_code == 400
    assert ledger.entries() == []


def test_a_killed_ledger_remembers_its_entries_and_that_a_request_was_lost(tmp_path):
    with running_ledger(tmp_path) as ledger, ThreadPoolExecutor() as pool:
        ledger.post("invoice 17")
        ledger.fault("hold", when="before")
        held = pool.submit(ledger.post, "invoice 18")
        eventually(lambda: ledger.faults()[0]["holding"] == 1, hoping_for="a held request")
        ledger.process.kill()
        with pytest.raises(httpx.TransportError):
            held.result()
    with running_ledger(tmp_path) as ledger:
        assert ledger.outcomes() == ["booked", "lost"]
        assert [entry["text"] for entry in ledger.entries()] == ["invoice 17"]


def test_people_see_the_newest_entries_and_nothing_they_wrote_is_markup(ledger: LedgerClient):
    ledger.post("invoice <b>17</b>", -1234567)

    shown = ledger.http.get("/")

    assert shown.headers["Content-Type"].startswith("text/html")
    assert "invoice &lt;b&gt;17&lt;/b&gt;" in shown.text
    assert "-12,345.67" in shown.text

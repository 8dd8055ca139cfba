"""The desk as its clients see it, over real HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.examples.desks import DeskClient, running_desk
from tests.waiting import eventually


def test_a_new_key_opens_a_ticket(desk: DeskClient):
    answer = desk.open("A-1", key="k1", title="broken lamp")

    assert answer.status_code == 201
    assert answer.json() == {"id": "T-1", "reference": "A-1", "title": "broken lamp", "details": {}}
    assert [row["key"] for row in desk.tickets()] == ["k1"]


def test_the_same_key_and_body_replays_the_first_answer(desk: DeskClient):
    first, second = desk.open(key="k1"), desk.open(key="k1")

    assert second.text == first.text
    assert second.status_code == 201
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(desk.tickets()) == 1
    assert desk.outcomes() == ["created", "replayed"]


def test_the_same_key_with_another_body_is_refused(desk: DeskClient):
    desk.open("A-1", key="k1")

    assert desk.open("A-2", key="k1").status_code == 422
    assert desk.outcomes() == ["created", "conflict"]
    assert len(desk.tickets()) == 1


def test_requests_without_a_key_are_not_deduplicated(desk: DeskClient):
    desk.open("A-1")
    desk.open("A-1")

    assert desk.stats()["tickets"] == 2
    assert desk.stats()["tickets_beyond_the_first_of_a_reference"] == 1
    assert desk.stats()["repeated_keys"] == 0


def test_a_key_in_progress_is_answered_with_409(desk: DeskClient):
    fault = desk.fault("hold", when="before")
    with ThreadPoolExecutor() as pool:
        held = pool.submit(desk.open, key="k1")
        eventually(lambda: desk.faults()[0]["holding"] == 1, hoping_for="a held request")
        busy = desk.open(key="k1")
        desk.http.post(f"/faults/{fault}/release")

        assert busy.status_code == 409
        assert held.result().status_code == 201
    assert desk.outcomes() == ["created", "busy"]


def test_requests_racing_for_one_key_open_one_ticket(desk: DeskClient):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: desk.open(key="k1").status_code, range(40)))

    assert set(answers) <= {201, 409}
    assert len(desk.tickets()) == 1
    assert len(desk.requests()) == 40


def test_a_key_past_its_retention_is_a_new_key(tmp_path):
    with running_desk(tmp_path, "--key-retention-seconds", "0") as desk:
        desk.open(key="k1")
        desk.open(key="k1")

        assert desk.outcomes() == ["created", "created"]
        assert desk.stats()["tickets_beyond_the_first_of_a_key"] == 1


def test_a_killed_desk_remembers_keys_requests_and_tickets(tmp_path):
    with running_desk(tmp_path) as desk:
        first = desk.open(key="k1")
        desk.process.kill()
        desk.process.wait()
    with running_desk(tmp_path) as desk:
        assert desk.open(key="k1").text == first.text
        assert desk.outcomes() == ["created", "replayed"]


def test_a_request_in_progress_when_the_desk_was_killed_did_nothing(tmp_path):
    with running_desk(tmp_path) as desk, ThreadPoolExecutor() as pool:
        desk.fault("hold", when="before")
        held = pool.submit(desk.open, key="k1")
        eventually(lambda: desk.faults()[0]["holding"] == 1, hoping_for="a held request")
        desk.process.kill()
        with pytest.raises(httpx.TransportError):
            held.result()
    with running_desk(tmp_path) as desk:
        assert desk.outcomes() == ["lost"]
        assert desk.open(key="k1").status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"reference": "A"}',
        b'{"reference": "", "title": "t"}',
        b'{"reference": 1, "title": "t"}',
        b'{"reference": "A", "title": "\\ud800"}',
        b'{"reference": "A", "title": "t", "details": 3}',
        b"[" * 100_000,
        b'{"reference": "A", "title": "' + b"x" * 1000 + b'"}',
        b"x" * 300_000,
    ],
)
def test_a_bad_body_is_answered_with_400_and_opens_nothing(desk: DeskClient, body: bytes):
    assert desk.http.post("/tickets", content=body).status_code == 400
    assert desk.open().status_code == 201
    assert len(desk.tickets()) == 1


def test_rows_come_in_pages(desk: DeskClient):
    for number in range(5):
        desk.open(f"A-{number}")

    first = desk.http.get("/tickets", params={"limit": 3}).json()
    second = desk.http.get("/tickets", params={"limit": 3, "after": first["next_after"]}).json()

    assert [row["reference"] for row in first["tickets"] + second["tickets"]] == [f"A-{n}" for n in range(5)]
    assert second["next_after"] is None


def test_an_unknown_address_is_answered_with_404(desk: DeskClient):
    assert desk.http.get("/nothing").status_code == 404
    assert desk.http.post("/faults/7/release").status_code == 404
    assert desk.http.get("/tickets", params={"after": "x"}).status_code == 400


def test_the_desk_stops_when_its_input_ends(tmp_path):
    with running_desk(tmp_path) as desk:
        assert desk.process.stdin
        desk.process.stdin.close()

        assert desk.process.wait(10) == 0


def test_the_desk_stops_on_sigterm_even_while_it_holds_a_request(tmp_path):
    with running_desk(tmp_path) as desk, ThreadPoolExecutor() as pool:
        desk.fault("hold")
        held = pool.submit(desk.open, key="k1")
        eventually(lambda: desk.faults()[0]["holding"] == 1, hoping_for="a held request")
        desk.process.terminate()

        assert desk.process.wait(10) == 0
        held.exception()

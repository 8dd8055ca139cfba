"""What a tool's `call.request` makes of answers: refused, later, not sent, or unknown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from durableops import NotSent, Refused, RetryLater
from durableops.authoring import registry
from durableops.authoring.decorators import tool
from durableops.clock import uptime
from durableops.effects.idempotency import prepare
from durableops.engine import calling
from durableops.engine.calling import LiveCall

pytestmark = pytest.mark.engine

with registry.isolated():

    @tool(safety="keyed", name="send", timeout=5.0)
    def send(call): ...


@pytest.fixture
def answer(monkeypatch) -> Iterator[Any]:
    """A transport in place of the network: what the other side answers, and what it was sent."""
    asked: list[httpx.Request] = []
    script: dict[str, Any] = {}

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if "error" in script:
            raise script["error"]
        return httpx.Response(script.get("status", 200), headers=script.get("headers"), text="said")

    client = httpx.Client(transport=httpx.MockTransport(handle), follow_redirects=False)
    monkeypatch.setattr(calling, "_client", lambda: client)
    script["asked"] = asked
    yield script
    client.close()


def live(*, send_before: float | None = None, gone: bool = False) -> LiveCall:
    prepared = prepare(
        send, {}, run_id=UUID(int=1), tenant_id=1, step_id="a", resource="r", author_key="", max_bytes=1000
    )
    return LiveCall(
        prepared, run_id="1", tenant="acme", attempt=1,
        send_before=uptime() + 5 if send_before is None else send_before, gone=lambda: gone,
    )  # fmt: skip


def test_request_carries_the_key_and_what_is_left_of_the_calls_time(answer):
    call = live()
    assert call.request("POST", "http://desk/tickets", json={"a": 1}).status_code == 200
    [request] = answer["asked"]
    assert request.headers["Idempotency-Key"] == call.key
    assert 0 < request.extensions["timeout"]["read"] <= 5.0


def test_headers_of_the_author_are_kept_and_may_name_the_key_themselves(answer):
    live().request("POST", "http://desk/", headers={"Authorization": "x", "Idempotency-Key": "mine"})
    [request] = answer["asked"]
    assert (request.headers["Authorization"], request.headers["Idempotency-Key"]) == ("x", "mine")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_definite_refusal_is_one(answer, status):
    answer["status"] = status
    with pytest.raises(Refused, match=str(status)):
        live().request("POST", "http://desk/")


@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 504, 302, 307])
def test_answer_that_says_nothing_about_what_happened_is_no_refusal(answer, status):  # C041
    answer["status"] = status
    with pytest.raises(httpx.HTTPStatusError):
        live().request("POST", "http://desk/")
    assert len(answer["asked"]) == 1


def http_date(when: datetime) -> str:
    return when.strftime("%a, %d %b %Y %H:%M:%S GMT")


RETRY_AFTER = {
    "60": (60.0, 60.0),
    "999999": (999_999.0, 999_999.0),
    "9" * 50: (1e9, 1e9),
    "0": (0.0, 0.0),
    "-5": (0.0, 0.0),
    "2abc": (0.0, 0.0),
    "1.5": (0.0, 0.0),
    "٣": (0.0, 0.0),
    "": (0.0, 0.0),
    http_date(datetime(2001, 1, 1, tzinfo=UTC)): (0.0, 0.0),
    http_date(datetime(9999, 12, 31, tzinfo=UTC)): (1e9, 1e12),
    http_date(datetime.now(UTC) + timedelta(days=1)): (80_000.0, 86_401.0),
}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("header", RETRY_AFTER, ids=lambda h: h[:20] or "empty")
def test_retry_after_is_read_as_the_standard_says(answer, status, header):  # C058
    answer |= {"status": status, "headers": [(b"Retry-After", header.encode())]}
    with pytest.raises(RetryLater) as later:
        live().request("POST", "http://desk/")
    low, high = RETRY_AFTER[header]
    assert low <= later.value.after_seconds <= high


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.PoolTimeout("busy")]
)
def test_connection_that_was_never_made_sent_nothing(answer, error):
    answer["error"] = error
    with pytest.raises(NotSent):
        live().request("POST", "http://desk/?token=secret")


@pytest.mark.parametrize(
    "error", [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("dropped"), httpx.WriteError("x")]
)
def test_connection_that_broke_later_leaves_the_outcome_unknown(answer, error):
    answer["error"] = error
    with pytest.raises(type(error)):
        live().request("POST", "http://desk/")


def test_nothing_is_sent_past_the_time_to_send_or_for_a_run_that_was_stopped(answer):
    for call in (live(send_before=uptime() - 1), live(gone=True)):
        with pytest.raises(NotSent):
            call.request("POST", "http://desk/")
        with pytest.raises(NotSent):
            call.check()
    assert answer["asked"] == []


def test_message_of_a_failed_connection_shows_no_query(answer):  # C146
    answer["error"] = httpx.ConnectError("refused")
    with pytest.raises(NotSent) as failed:
        live().request("POST", "http://desk/?token=hunter22!")
    assert "hunter22!" not in str(failed.value)


def test_call_knows_its_facts():
    call = live()
    assert (call.resource, call.tenant, call.attempt, call.timeout) == ("r", "acme", 1, 5.0)
    assert timedelta(seconds=3) < call.deadline - datetime.now(UTC) <= timedelta(seconds=5)

"""What one HTTP call may take, and what is tried again when it never left."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from durableops.authoring import registry
from durableops.authoring.decorators import tool
from durableops.clock import monotonic
from durableops.effects.idempotency import Prepared
from durableops.engine.calling import LiveCall
from durableops.errors import NotSent


@pytest.fixture
def dribbling_server() -> Iterator[str]:
    """A server that sends its answer byte by byte for as long as anybody listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with closing(connection):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    stop.set()
    thread.join()
    listener.close()


def live_call(*, timeout: float) -> LiveCall:
    with registry.isolated():

        @tool(safety="keyed", timeout=timeout)
        def post(call, **request):
            return None

    prepared = Prepared(tool=post, request={}, resource="r", author_key="", slot="00", key="the-key", request_hash="11")
    call = LiveCall(prepared, run_id="run", tenant="t", attempt=1, send_before=monotonic() + 60, gone=lambda: False)
    call.begin()
    return call


def test_an_answer_that_dribbles_in_is_cut_off_at_the_calls_timeout(dribbling_server: str):
    call = live_call(timeout=0.3)
    began = monotonic()

    with pytest.raises(httpx.ReadTimeout):
        call.request("POST", dribbling_server)

    assert monotonic() - began < 5


def test_a_refused_connection_is_known_not_to_have_sent_anything():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

    with pytest.raises(NotSent):
        live_call(timeout=1).request("POST", url)

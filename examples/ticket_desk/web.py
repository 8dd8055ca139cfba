"""HTTP in front of the desk: routes, reading bodies, writing answers; one thread per connection."""

from __future__ import annotations

import json
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from examples.ticket_desk import store
from examples.ticket_desk.desk import Desk, Reply
from examples.ticket_desk.faults import read_fault
from examples.ticket_desk.messages import MAX_BODY_BYTES, Answer, BadRequest, json_answer, problem, read_arrival

MAX_DISCARDED_BYTES = 4 * 1024 * 1024
MAX_PAGE = 10_000
SLOW_PIECES = 20


class Server(ThreadingHTTPServer):
    """A threaded server that knows its desk."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], desk: Desk) -> None:
        self.desk = desk
        super().__init__(address, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is printed as usual."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


class Handler(BaseHTTPRequestHandler):
    """Finds the route, runs it, writes the answer in one piece."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120

    def do_GET(self) -> None:
        """Read only."""
        self._route("GET")

    def do_POST(self) -> None:
        """Tickets and faults."""
        self._route("POST")

    def do_DELETE(self) -> None:
        """Faults."""
        self._route("DELETE")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """The request log is in the database."""

    def _route(self, method: str) -> None:
        target = urlsplit(self.path)
        try:
            body = self._read_body()
            for route_method, pattern, run in ROUTES:
                match = pattern.fullmatch(target.path)
                if route_method == method and match:
                    run(self, body, match, parse_qs(target.query))
                    return
            self.send(problem(404, f"there is no {method} {target.path}"))
        except BadRequest as error:
            self.send(problem(400, str(error)))

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            # What follows on this connection cannot be told apart. It is read all the same, up to a point: closing with
            # bytes unread resets the connection, and the client would not see the answer.
            self.close_connection = True
            self.rfile.read(min(int(length) if length.isdecimal() else 0, MAX_DISCARDED_BYTES))
            raise BadRequest(f"wanted a Content-Length of at most {MAX_BODY_BYTES} bytes and no chunks")
        return self.rfile.read(int(length))

    def send(self, answer: Answer, *, seconds: float = 0.0) -> None:
        """Write an answer, in one piece or dribbled over `seconds`."""
        body = answer.body.encode()
        phrase = HTTPStatus(answer.status).phrase
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
        if self.close_connection:
            headers["Connection"] = "close"  # or the client would send its next request into a closing connection
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        message = f"HTTP/1.1 {answer.status} {phrase}\r\n{head}\r\n".encode() + body
        if not seconds:
            self.wfile.write(message)
            return
        size = max(1, len(message) // SLOW_PIECES)
        pieces = [message[start : start + size] for start in range(0, len(message), size)]
        for piece in pieces:
            self.wfile.write(piece)
            time.sleep(seconds / len(pieces))

    def reply(self, reply: Reply) -> None:
        """Send what the desk decided, or hang up."""
        if reply.answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        try:
            if _has_hung_up(self.connection):
                raise ConnectionResetError
            self.send(reply.answer, seconds=reply.send_seconds)
        except OSError:
            self.close_connection = True
            self.server.desk.note_client_gone(reply.request_id)


def _has_hung_up(connection: socket.socket) -> bool:
    """True if the other end has closed: a write would still seem to succeed."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""


Query = dict[str, list[str]]


def post_ticket(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """Open a ticket."""
    del match, query
    key = handler.headers.get("Idempotency-Key", "")
    handler.reply(handler.server.desk.handle(read_arrival(body, key=key, received_at=time.time())))


def get_rows(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """A page of the request log or of the tickets: `after` is the last id seen, `limit` at most 10,000."""
    del body
    after, limit = _whole(query, "after", 0), min(_whole(query, "limit", 1000), MAX_PAGE)
    table: Literal["tickets", "requests"] = "tickets" if match[1] == "tickets" else "requests"
    rows = store.page_of(handler.server.desk.path, table, after=after, limit=limit)
    following = rows[-1]["id"] if len(rows) == limit and rows else None
    handler.send(json_answer({table: rows, "next_after": following}))


def get_stats(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """Totals."""
    del body, match, query
    handler.send(json_answer(store.stats(handler.server.desk.path)))


def get_faults(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """The faults that are set and what they struck."""
    del body, match, query
    handler.send(json_answer({"faults": handler.server.desk.faults.as_json()}))


def post_fault(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """Set a fault."""
    del match, query
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    handler.send(json_answer(handler.server.desk.faults.add(read_fault(fields)).as_json(), status=201))


def release_fault(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """Let go of what a fault holds."""
    del body, query
    fault = handler.server.desk.faults.release(int(match[1]))
    handler.send(json_answer(fault.as_json()) if fault else problem(404, f"there is no fault {match[1]}"))


def delete_faults(handler: Handler, body: bytes, match: re.Match[str], query: Query) -> None:
    """Forget all faults."""
    del body, match, query
    handler.server.desk.faults.release_all()
    handler.send(json_answer({"faults": []}))


def _whole(query: Query, name: str, default: int) -> int:
    text = query.get(name, [str(default)])[-1]
    if not text.isdecimal():
        raise BadRequest(f"{name} is {text!r}; wanted a whole number")
    return int(text)


Route = tuple[str, re.Pattern[str], Callable[[Handler, bytes, re.Match[str], Query], None]]

ROUTES: list[Route] = [
    ("POST", re.compile("/tickets"), post_ticket),
    ("GET", re.compile("/(tickets|requests)"), get_rows),
    ("GET", re.compile("/stats"), get_stats),
    ("GET", re.compile("/faults"), get_faults),
    ("POST", re.compile("/faults"), post_fault),
    ("POST", re.compile(r"/faults/(\d{1,9})/release"), release_fault),
    ("DELETE", re.compile("/faults"), delete_faults),
]

"""HTTP in front of a service: routes, reading bodies, writing answers, being down; one thread per connection."""

from __future__ import annotations

import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from examples.serving.faults import MAX_SECONDS, read_fault
from examples.serving.messages import MAX_BODY_BYTES, Answer, BadRequest, json_answer, problem, read_object
from examples.serving.service import Reply, Service

MAX_DISCARDED_BYTES = 4 * 1024 * 1024
SLOW_PIECES = 20


type Query = dict[str, list[str]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request that found its route."""

    service: Service[Any]
    handler: Handler
    body: bytes
    match: re.Match[str]
    query: Query

    def header(self, name: str) -> str:
        """A header; empty if it did not come."""
        found: str = self.handler.headers.get(name, "")
        return found

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the query; the last, if it came twice."""
        return self.query.get(name, [default])[-1]

    def number(self, name: str, default: int) -> int:
        """A whole number of the query. Raises BadRequest."""
        text = self.text(name, str(default))
        if not text.isdecimal():
            raise BadRequest(f"{name} is {text!r}; wanted a whole number")
        return int(text)


type Run = Callable[[Asked], Answer | Reply | None]
"""What a route does. None: it has answered by itself."""
type Route = tuple[str, re.Pattern[str], Run]


class Server(ThreadingHTTPServer):
    """A threaded server in front of one service."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], service: Service[Any], routes: Sequence[Route]) -> None:
        self.service = service
        self.routes = (*routes, *FAULT_ROUTES)
        self.down_for: float | None = None
        """Seconds after which it comes back; None while it serves, and when it stops for good."""
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Keep the connection in mind, for hang_up()."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def stop(self) -> None:
        """End serve_forever(), which the main thread is in: it must be asked from another thread."""
        threading.Thread(target=self.shutdown).start()

    def hang_up(self) -> None:
        """Break every open connection, as the end of the process would."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

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
        """Work and faults."""
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
            query = parse_qs(target.query, keep_blank_values=True)
            for route_method, pattern, run in self.server.routes:
                match = pattern.fullmatch(target.path)
                if route_method == method and match:
                    asked = Asked(service=self.server.service, handler=self, body=body, match=match, query=query)
                    self._answer(run(asked))
                    return
            self.send(problem(404, f"there is no {method} {target.path}"))
        except BadRequest as error:
            self.send(problem(400, str(error)))

    def _answer(self, answer: Answer | Reply | None) -> None:
        if isinstance(answer, Reply):
            self._reply(answer)
        elif answer is not None:
            self.send(answer)

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
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(body)), **answer.headers}
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

    def _reply(self, reply: Reply) -> None:
        """Send what the service decided, or hang up."""
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
            self.server.service.note_client_gone(reply.request_id)


def _has_hung_up(connection: socket.socket) -> bool:
    """True if the other end has closed: a write would still seem to succeed."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    return bool(poller.poll(0)) and connection.recv(1, socket.MSG_PEEK) == b""


def get_faults(asked: Asked) -> Answer:
    """The faults that are set and what they struck."""
    return json_answer({"faults": asked.service.faults.as_json()})


def post_fault(asked: Asked) -> Answer:
    """Set a fault."""
    fields = read_object(asked.body, wanted='{"kind": "timeout", …}')
    return json_answer(asked.service.faults.add(read_fault(fields)).as_json(), status=201)


def release_fault(asked: Asked) -> Answer:
    """Let go of what a fault holds."""
    fault = asked.service.faults.release(int(asked.match[1]))
    return json_answer(fault.as_json()) if fault else problem(404, f"there is no fault {asked.match[1]}")


def delete_faults(asked: Asked) -> Answer:
    """Forget all faults."""
    asked.service.faults.release_all()
    return json_answer({"faults": []})


def go_down(asked: Asked) -> None:
    """Refuse connections for some seconds, as a service that is not running; what it holds is cut off."""
    seconds = read_object(asked.body, wanted='{"seconds": 3}').get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
        raise BadRequest(f"seconds is {seconds!r}; wanted more than 0, at most {MAX_SECONDS:.0f}")
    asked.handler.close_connection = True
    asked.handler.send(json_answer({"down_for": seconds}, status=202))
    asked.handler.server.down_for = float(seconds)
    asked.handler.server.stop()


FAULT_ROUTES: list[Route] = [
    ("GET", re.compile("/faults"), get_faults),
    ("POST", re.compile("/faults"), post_fault),
    ("POST", re.compile(r"/faults/(\d{1,9})/release"), release_fault),
    ("DELETE", re.compile("/faults"), delete_faults),
    ("POST", re.compile("/down"), go_down),
]

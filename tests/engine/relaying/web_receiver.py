"""A real HTTP server on this machine that remembers what it was sent, and answers as a test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebReceiver:
    """What arrived; `script` holds the answers to come: a status, (status, headers, body), or a function to call."""

    url: str = ""
    script: list[Any] = field(default_factory=list)
    got: list[Received] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def keys(self) -> list[str]:
        return [each.headers["webhook-id"] for each in self.got]


@contextmanager
def receiving(*script: Any, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[WebReceiver]:
    """A receiver on a port of its own, until the block ends."""
    receiver = WebReceiver(script=list(script))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with receiver.lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Received(path=self.path, headers=headers, body=body))
                answer = receiver.script.pop(0) if receiver.script else 200
            if callable(answer):
                answer(self)
                return
            status, more, text = answer if isinstance(answer, tuple) else (answer, {}, b"{}")
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.url = f"{'http' if tls is None else 'https'}://{host}:{server.server_port}/in/T000"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


type Answer = Callable[[BaseHTTPRequestHandler], None]

"""A service as a process: its command line, its address as one JSON line, and how it stops and comes back."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.serving.service import Service
from examples.serving.web import Route, Server


def parser_for(program: str, description: str) -> argparse.ArgumentParser:
    """The arguments that every service takes."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--data", type=Path, required=True, help="folder for the service's database")
    parser.add_argument("--stop-at-end-of-input", action="store_true", help="stop when standard input closes")
    return parser


class Process:
    """Serves until SIGTERM, SIGINT, or (if asked) the end of standard input."""

    def __init__(self, options: argparse.Namespace, service: Service[Any], routes: Sequence[Route]) -> None:
        self._service = service
        self._routes = routes
        self._data = options.data
        self._reads_input = options.stop_at_end_of_input
        self._stopped = threading.Event()
        self._server = Server((options.host, options.port), service, routes)

    def serve(self) -> int:
        """Print the address, then serve. Returns the exit status."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        if self._reads_input:
            threading.Thread(target=self._stop_at_end_of_input, daemon=True).start()
        print(json.dumps({"url": self._server.url, "pid": os.getpid(), "data": str(self._data)}), flush=True)
        while not self._stopped.is_set():
            self._server.serve_forever(poll_interval=0.1)
            self._server.server_close()
            if not self._stopped.is_set():
                self._be_down()
        self._service.close()
        return 0

    def _be_down(self) -> None:
        """Nobody listens for a while; then at the same address again."""
        self._server.hang_up()
        host, port = self._server.server_address[:2]
        if not self._stopped.wait(self._server.down_for or 0.0):
            self._server = Server((str(host), int(port)), self._service, self._routes)

    def _stop(self, *_: object) -> None:
        self._stopped.set()
        self._server.stop()

    def _stop_at_end_of_input(self) -> None:
        # Not through sys.stdin: a thread inside its lock would abort the interpreter's exit.
        while os.read(0, 4096):
            pass
        self._stop()

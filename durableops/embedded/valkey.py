"""One Valkey on a private unix socket: start it, stop it. It outlives whoever started it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.identity import Identity
from durableops.embedded.places import Places, private_folder
from durableops.embedded.processes import ask, last_words, run


@dataclass(frozen=True, kw_only=True)
class Valkey:
    """The broker of one checkout."""

    program: Path
    places: Places

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.places.valkey_socket), safe='/')}"

    @property
    def log(self) -> Path:
        return self.places.home / "valkey.log"

    @property
    def _pid_file(self) -> Path:
        return self.places.home / "valkey.pid"

    def is_running(self) -> bool:
        return ask(self.places.valkey_socket, b"PING\r\n") is not None

    def start(self) -> None:
        """Start it in the background. Returns when it answers."""
        private_folder(self.places.sockets)
        private_folder(self.places.valkey_data)
        command: list[str | Path] = [
            self.program,
            *("--port", "0", "--unixsocket", self.places.valkey_socket, "--unixsocketperm", "700"),
            *("--dir", self.places.valkey_data, "--appendonly", "yes", "--save", ""),
            *("--maxmemory-policy", "noeviction", "--daemonize", "yes"),
            *("--pidfile", self._pid_file, "--logfile", self.log),
        ]
        run(command, identity=Identity(kind="self"), log=self.log, doing="starting Valkey")
        self._wait(lambda: ask(self.places.valkey_socket, b"PING\r\n") == b"+PONG\r\n", doing="starting")

    def stop(self) -> None:
        """Have it write what it holds and end."""
        ask(self.places.valkey_socket, b"SHUTDOWN\r\n")
        self._wait(lambda: not self.is_running() and not self._pid_file.exists(), doing="stopping")

    def _wait(self, done: Callable[[], bool], *, doing: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise EmbeddedError(
                    f"{doing} Valkey took over {seconds:.0f} s: {last_words(self.log)} (see {self.log})"
                )
            time.sleep(0.01)

"""Servers of a test's own, which it may flush, kill and restart: a broker, and a database with its tables."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from durableops.embedded.binaries import find_binaries
from durableops.embedded.identity import choose_identity
from durableops.embedded.places import places_for
from durableops.embedded.postgres import Postgres
from durableops.embedded.roles import DATABASE, OWNER, ensure_roles
from durableops.embedded.valkey import Valkey
from tests.acceptance.processes import patiently


class Broker:
    """A broker on a socket of its own."""

    def __init__(self, folder: Path) -> None:
        places = places_for(folder)
        places.home.mkdir()
        self._server = Valkey(program=find_binaries().valkey, places=places)
        self._pid_file = places.home / "valkey.pid"

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        """SIGKILL: nothing is said to its clients, and nothing is written."""
        os.kill(int(self._pid_file.read_text()), signal.SIGKILL)
        patiently(lambda: not self._server.is_running(), hoping_for="a broker that is gone")

    def close(self) -> None:
        if self._server.is_running():
            self._server.stop()


class DatabaseServer:
    """A PostgreSQL of its own."""

    def __init__(self, folder: Path) -> None:
        places = places_for(folder)
        places.home.mkdir()
        self.server = Postgres(programs=find_binaries().postgres, places=places, identity=choose_identity())

    @property
    def url(self) -> str:
        return self.server.url(OWNER, DATABASE)

    def start(self) -> str:
        """Start it with an empty database, and return its address."""
        self.server.start()
        ensure_roles(self.server)
        return self.url

    def restart_at_once(self) -> None:
        """Stop it as a crash would, and start it again: it has to recover from its log."""
        self.server._pg_ctl("stop", "--wait", "--mode=immediate", "--timeout=30", doing="stopping PostgreSQL at once")
        self.server.start()

    def close(self) -> None:
        if self.server.is_running():
            self.server.stop()


@contextmanager
def on_server(url: str) -> Iterator[None]:
    """Let Django's connection of this process speak to another server, with our tables made there."""
    before = dict(connection.settings_dict)
    parts = urlsplit(url)
    there: dict[str, Any] = {
        "NAME": parts.path.lstrip("/"), "USER": parts.username or "", "PASSWORD": "", "PORT": "",
        "HOST": parse_qs(parts.query).get("host", [parts.hostname or ""])[0],
    }  # fmt: skip
    connection.close()
    connection.settings_dict.update(there)
    try:
        with override_settings(DATABASE_APPLICATION_ROLE=""):
            call_command("migrate", verbosity=0, interactive=False)
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)

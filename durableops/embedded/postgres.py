"""One PostgreSQL cluster on a private unix socket: make it, start it, stop it. Roles and databases are in roles.py."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from durableops.embedded.errors import EmbeddedError
from durableops.embedded.identity import Identity
from durableops.embedded.places import Places, private_folder, shared_folder, short_folder
from durableops.embedded.processes import ask, last_words, run

# fsync, full_page_writes and synchronous_commit keep their defaults: what is committed here survives a power cut.
SETTINGS = """\
listen_addresses = ''
unix_socket_directories = '"{sockets}"'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 128MB
# Few checkpoints: after each, every page touched is written to the WAL in full once more.
max_wal_size = 2GB
checkpoint_timeout = 15min
jit = off
log_min_messages = warning
# A client that lost its transaction must not hold back the clean-up of dead rows for ever.
idle_in_transaction_session_timeout = 10min
"""
BUILTIN_LOCALE_SINCE = 17
# What a new server says when the one before was killed a moment ago.
STILL_HELD = ("already exists", "still in use", "Is another postmaster")


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """The cluster of one checkout."""

    programs: Path
    places: Places
    identity: Identity

    @property
    def data(self) -> Path:
        """Beside the checkout's other files, unless `nobody` runs the server: that user may not reach them."""
        if self.identity.kind == "nobody":
            return self._within_reach / "postgres"
        return self.places.postgres_data

    @property
    def sockets(self) -> Path:
        """The folder of the socket; the server's user has to own it."""
        if self.identity.kind == "nobody":
            return self._within_reach / "sockets"
        return self.places.sockets

    @property
    def _within_reach(self) -> Path:
        # Below /var/tmp, which outlives a restart of the machine: this holds data.
        return short_folder(self.places.home.parent, below="/var/tmp")  # noqa: S108  # made by us, or refused

    @property
    def log(self) -> Path:
        return self.places.home / "postgres.log"

    def url(self, role: str, database: str) -> str:
        """Return the address of a database for a role."""
        return f"postgresql://{role}@/{database}?host={quote(str(self.sockets), safe='/')}"

    def is_running(self) -> bool:
        """Tell whether somebody listens; whether he also accepts is what `start` waits for."""
        return ask(self.sockets / self.places.postgres_socket.name, b"") is not None

    def start(self) -> None:
        """Make the cluster if there is none, and start it. Returns when it accepts connections."""
        if self.identity.kind == "nobody":
            shared_folder(self._within_reach)
        private_folder(self.sockets, owner=self.identity.owner)
        self._make_cluster()
        self._write_settings()
        self._start_once_the_former_is_gone()

    def stop(self) -> None:
        """Stop it after a checkpoint; connections are cut."""
        self._pg_ctl("stop", "--wait", "--mode=fast", "--timeout=60", doing="stopping PostgreSQL")

    def _make_cluster(self) -> None:
        if (self.data / "PG_VERSION").exists():
            self._refuse_another_version()
            return
        # Made aside and renamed, so that an interrupted initdb leaves nothing that looks like a cluster.
        draft = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        private_folder(draft, owner=self.identity.owner)
        command: list[str | Path] = [
            self._program("initdb"),
            *("--pgdata", draft, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--data-checksums"),
            *self._locale(),
        ]
        run(command, identity=self.identity, log=self.log, doing="making a PostgreSQL cluster")
        draft.rename(self.data)

    def _locale(self) -> list[str]:
        # The built-in provider sorts the same on every machine; it is younger than the oldest server we support.
        if self.major_version() >= BUILTIN_LOCALE_SINCE:
            return ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        return ["--locale=C"]

    def _write_settings(self) -> None:
        sockets = str(self.sockets).replace("'", "''")
        text = SETTINGS.format(sockets=sockets)
        included = self.data / "durableops.conf"
        included.write_text(text, encoding="utf-8")
        if self.identity.owner is not None:
            included.chmod(0o644)
        main = self.data / "postgresql.conf"
        line = "include = 'durableops.conf'\n"
        if line not in (before := main.read_text(encoding="utf-8")):
            main.write_text(before + line, encoding="utf-8")

    def _refuse_another_version(self) -> None:
        made_by = (self.data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if made_by != str(self.major_version()):
            raise EmbeddedError(
                f"{self.data} was made by PostgreSQL {made_by}, and the programs here are {self.major_version()}: "
                "move that folder away to start with an empty database."
            )

    def major_version(self) -> int:
        """Return the programs' major version, such as 18."""
        said = subprocess.run(
            [self.programs / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout  # "postgres (PostgreSQL) 18.6", with a distribution's remarks behind it
        return int(said.split(")", 1)[1].split(".", 1)[0])

    def _start_once_the_former_is_gone(self, *, seconds: float = 15.0) -> None:
        """Start, and again while a killed server's processes still hold its lock file or its memory."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._pg_ctl("start", "--wait", "--timeout=60", doing="starting PostgreSQL")
            except EmbeddedError:
                if time.monotonic() > end or not self._is_still_held():
                    raise
                time.sleep(0.1)
            else:
                return

    def _is_still_held(self) -> bool:
        return any(complaint in last_words(self._server_log, lines=3) for complaint in STILL_HELD)

    @property
    def _server_log(self) -> Path:
        return self.data / "server.log"

    def _pg_ctl(self, *arguments: str, doing: str) -> None:
        command: list[str | Path] = [self._program("pg_ctl"), *arguments, "--pgdata", self.data, "--silent"]
        if arguments[0] == "start":
            command += ["--log", self._server_log]
        run(command, identity=self.identity, log=self.log, doing=doing, words=self._server_log)

    def _program(self, name: str) -> Path:
        return self._programs_within_reach() / name

    def _programs_within_reach(self) -> Path:
        """Return the programs' folder, or for `nobody`, who may not enter our checkout, that of a copy."""
        if self.identity.kind != "nobody":
            return self.programs
        package = self.programs.parent.parent
        libraries = package.with_name(package.name + ".libs")
        if not libraries.exists():
            return self.programs  # the system's own programs, which anybody may run
        copy = self._within_reach / "programs"
        for folder in (package, libraries):
            if not (copy / folder.name).exists():
                shutil.copytree(folder, copy / folder.name, symlinks=True)
        return copy / package.name / self.programs.relative_to(package)

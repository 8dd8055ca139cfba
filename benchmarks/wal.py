"""Counting what reached the disk: commits and bytes of one database, read from the write-ahead log itself.

Other databases of the server are left out: a record counts if its transaction touched ours. Bytes are those of the
records, without the full-page images that depend on when the last checkpoint was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

_RECORD = re.compile(r"^rmgr: (\S+)\s+len \(rec/tot\):\s*(\d+)/\s*\d+, tx:\s*(\d+),")
_SYSTEM_PROGRAMS = "/usr/lib/postgresql"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What one database wrote between two looks."""

    commits: int
    record_bytes: int


class WalMeter:
    """Reads the log of one server from where it stood when this was made."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.trouble = ""
        """Why nothing can be counted here; empty if it can."""
        self._folder, self._program = self._find()
        self._begin = self._position()

    def _find(self) -> tuple[Path, str]:
        folder = Path(self._ask("SHOW data_directory") if self._may_ask() else os.environ.get("BENCH_PGDATA", ""))
        major = self._connection.info.server_version // 10000
        program = _waldump(folder, major)
        if not program:
            self.trouble = f"no pg_waldump of PostgreSQL {major} was found"
        elif not os.access(folder / "pg_wal", os.R_OK | os.X_OK):
            self.trouble = "the server's write-ahead log cannot be read by this user"
        return folder, program

    def _may_ask(self) -> bool:
        return not os.environ.get("BENCH_PGDATA")

    def _ask(self, query: str) -> Any:
        row = self._connection.execute(query).fetchone()
        return row[0] if row else None

    def _position(self) -> str:
        return str(self._ask("SELECT pg_current_wal_flush_lsn()::text"))

    def stop(self) -> Written | None:
        """What our database wrote since this was made; None if the log cannot be read (`trouble` says why)."""
        # Commits that did not wait for the disk are pushed to it before the end is taken.
        self._ask("SELECT pg_logical_emit_message(true, 'bench', '')")
        end = self._position()
        if self.trouble or end == self._begin:
            return None
        database = self._ask("SELECT oid FROM pg_database WHERE datname = current_database()")
        command = [self._program, "-p", str(self._folder / "pg_wal"), "-s", self._begin, "-e", end]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            return tally(process.stdout, database=int(database))


def tally(lines: Any, *, database: int) -> Written:
    """Sum up `pg_waldump` lines: the transactions that touched a relation of `database`, their bytes and commits."""
    ours: set[str] = set()
    sizes: dict[str, int] = {}
    committed: set[str] = set()
    needle = re.compile(rf"rel \d+/{database}/")
    for line in lines:
        found = _RECORD.match(line)
        if found is None or found[3] == "0":
            continue
        kind, size, transaction = found.groups()
        sizes[transaction] = sizes.get(transaction, 0) + int(size)
        if needle.search(line):
            ours.add(transaction)
        elif kind == "Transaction" and "desc: COMMIT" in line:
            committed.add(transaction)
    return Written(commits=len(ours & committed), record_bytes=sum(sizes[transaction] for transaction in ours))


def _waldump(folder: Path, major: int) -> str:
    """The program of the server's own version: it reads no other version's log."""
    for candidate in (_beside_running_server(folder), Path(_SYSTEM_PROGRAMS) / str(major) / "bin" / "pg_waldump"):
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which("pg_waldump") or ""


def _beside_running_server(folder: Path) -> Path | None:
    try:
        pid = (folder / "postmaster.pid").read_text().split()[0]
        return Path(f"/proc/{pid}/exe").resolve().parent / "pg_waldump"
    except (OSError, IndexError):
        return None

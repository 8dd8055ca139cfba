"""Start, reuse and stop the servers of one checkout, and say where they are. How each is run is not decided here."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from durableops.embedded.binaries import find_binaries
from durableops.embedded.identity import choose_identity
from durableops.embedded.places import Places, places_for
from durableops.embedded.postgres import Postgres
from durableops.embedded.roles import APPLICATION, DATABASE, OWNER, ensure_roles
from durableops.embedded.valkey import Valkey
from durableops.environment import SERVICES_FILE, write_file

GIVEN = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")


def start(checkout: Path, *, environ: Mapping[str, str]) -> dict[str, str]:
    """Start what the environment does not already name, or reuse it, and return the addresses of all.

    Raises EmbeddedError if a server cannot be had.
    """
    urls = {name: environ[name] for name in GIVEN if environ.get(name)}
    if "DATABASE_URL" in urls and "REDIS_URL" in urls:
        return urls
    places = places_for(checkout)
    with _alone(places):
        postgres, valkey = _servers(places)
        own: dict[str, str] = {}
        if "DATABASE_URL" not in urls:
            own |= _start_postgres(postgres)
            urls.pop("DATABASE_OWNER_URL", None)
        if "REDIS_URL" not in urls:
            own |= _start_valkey(valkey)
        write_file(places.home / SERVICES_FILE, own)
    return {**own, **urls}


def stop(checkout: Path) -> list[str]:
    """Stop the checkout's servers and return the names of those that ran. Their data stays."""
    places = places_for(checkout)
    if not places.home.exists():
        return []
    with _alone(places):
        postgres, valkey = _servers(places)
        stopped = []
        if postgres.is_running():
            postgres.stop()
            stopped.append("PostgreSQL")
        if valkey.is_running():
            valkey.stop()
            stopped.append("Valkey")
        if places.sockets.parent != places.home:
            # A short folder stands outside the checkout and would outlive it. One in use is not empty, and stays.
            with suppress(OSError):
                places.sockets.rmdir()
    return stopped


def _servers(places: Places) -> tuple[Postgres, Valkey]:
    binaries = find_binaries()
    postgres = Postgres(programs=binaries.postgres, places=places, identity=choose_identity())
    return postgres, Valkey(program=binaries.valkey, places=places)


def _start_postgres(postgres: Postgres) -> dict[str, str]:
    if not postgres.is_running():
        postgres.start()
        ensure_roles(postgres)
    return {
        "DATABASE_URL": postgres.url(APPLICATION, DATABASE),
        "DATABASE_OWNER_URL": postgres.url(OWNER, DATABASE),
    }


def _start_valkey(valkey: Valkey) -> dict[str, str]:
    if not valkey.is_running():
        valkey.start()
    return {"REDIS_URL": valkey.url}


@contextmanager
def _alone(places: Places) -> Iterator[None]:
    """Let one process at a time start or stop these servers; the others wait and then find the work done."""
    places.home.mkdir(exist_ok=True)
    handle = os.open(places.home / "services.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

"""Where a benchmark runs: a database of its own on the given server, and the environment of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from psycopg import sql

from benchmarks.marks import VARIABLE

CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Place:
    """One scratch installation."""

    environment: dict[str, str]
    folder: Path

    @property
    def owner_url(self) -> str:
        """The scratch database as the role that owns it."""
        return self.environment["DATABASE_OWNER_URL"] or self.environment["DATABASE_URL"]

    @property
    def database(self) -> str:
        """Its name on the server."""
        return urlsplit(self.owner_url).path.removeprefix("/")

    @property
    def marks_path(self) -> Path:
        return Path(self.environment[VARIABLE])


@contextmanager
def scratch() -> Iterator[Place]:
    """Make the database with its tables; drop it at the end, whatever happened."""
    name = f"bench_durableops_{os.getpid()}"
    owner = settings.DATABASE_OWNER_URL or settings.DATABASE_URL
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        psycopg.connect(_on(owner, "postgres"), autocommit=True) as server,
    ):
        place = Place(environment=_environment(name, Path(folder)), folder=Path(folder))
        try:
            make_database(place)
            yield place
        finally:
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def make_database(place: Place) -> None:
    """Make the database with its tables."""
    owner = settings.DATABASE_OWNER_URL or settings.DATABASE_URL
    with psycopg.connect(_on(owner, "postgres"), autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(place.database)))
    manage(place, "migrate", "--verbosity", "0", "--skip-checks")


def manage(place: Place, *command: str) -> None:
    """Run one management command there. Raises CalledProcessError."""
    subprocess.run(
        [sys.executable, str(CHECKOUT / "manage.py"), *command],
        env=place.environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _environment(name: str, folder: Path) -> dict[str, str]:
    owner = _on(settings.DATABASE_OWNER_URL, name) if settings.DATABASE_OWNER_URL else ""
    # Without the first: a process that starts again finds its modules compiled, as it does in production.
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **given,
        "DJANGO_SETTINGS_MODULE": "durableops.settings",
        "DURABLEOPS_APPS": "benchmarks",
        "DURABLEOPS_QUEUE_NAME": name,
        "DURABLEOPS_LOG_LEVEL": "ERROR",
        "DATABASE_URL": _on(settings.DATABASE_URL, name),
        "DATABASE_OWNER_URL": owner,
        "REDIS_URL": settings.REDIS_URL,
        "PYTHONPATH": str(CHECKOUT),
        VARIABLE: str(folder / "marks"),
    }


def _on(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()

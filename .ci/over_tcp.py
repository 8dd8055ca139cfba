"""Run the engine's tests at sixteen places, against this machine's own PostgreSQL and Redis over TCP if it has them.

The suite itself talks to newer servers over unix sockets and moves one run at a time; both ways have to stay true.
Without such servers the sixteen places are proved on the suite's own.
"""

from __future__ import annotations

import getpass
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis
from psycopg import sql

CHECKOUT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
OLDEST_POSTGRES = 150000
PLACES = "16"
_WITH_RIGHTS_OF = """
SELECT DISTINCT d.datname FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid
JOIN pg_roles r ON r.oid = s.refobjid WHERE s.refclassid = 'pg_authid'::regclass AND r.rolname = %s"""
FOLDERS = ("runs", "engine", "effects", "limits", "upkeep", "concurrency", "acceptance")


def main() -> None:
    """Look for the servers, and run the tests, on the suite's own if one is missing."""
    owner, broker = find_postgres(), find_redis()
    if owner is None or broker is None:
        missing = " and ".join(name for name, url in (("PostgreSQL 15+", owner), ("Redis", broker)) if url is None)
        print(f"over TCP: not run, no usable {missing} at {HOST}.")
        sys.exit(play({}, "on the suite's own servers"))
    with application_role(owner) as application:
        urls = {"DATABASE_OWNER_URL": owner, "DATABASE_URL": application, "REDIS_URL": broker}
        status = play({**urls, "TEST_DATABASE_SUFFIX": f"tcp_{os.getpid()}"}, f"against {HOST}")
    sys.exit(status)


def play(settings: dict[str, str], where: str) -> int:
    """Run the engine's tests with sixteen places in each worker; returns pytest's status."""
    folders = [f"tests/{name}" for name in FOLDERS if (CHECKOUT / "tests" / name).is_dir()]
    print(f"sixteen places: {', '.join(folders)} {where}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not browser and not drill and not embedded", *folders]
    environment = {**os.environ, **settings, "TEST_CONCURRENCY": PLACES}
    return subprocess.run(command, cwd=CHECKOUT, env=environment, check=False).returncode


def find_postgres() -> str | None:
    """Return the address of a server on which we may create databases and roles, without a password."""
    for role in dict.fromkeys((getpass.getuser(), "postgres", "root")):
        url = f"postgresql://{role}@{HOST}:5432/postgres"
        try:
            with psycopg.connect(url, connect_timeout=3) as server:
                query = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
                row = server.execute(query).fetchone()
                if row and row[0] and server.info.server_version >= OLDEST_POSTGRES:
                    return url
        except psycopg.OperationalError:
            continue
    return None


def find_redis() -> str | None:
    """Return the address of a database of the server that holds nothing."""
    for number in range(15, 0, -1):
        url = f"redis://{HOST}:6379/{number}"
        try:
            with redis.Redis.from_url(url, socket_connect_timeout=3) as server:
                if server.dbsize() == 0:
                    return url
        except redis.ResponseError:
            continue
        except redis.RedisError:
            return None
    return None


@contextmanager
def application_role(owner: str) -> Iterator[str]:
    """Create a role without rights for the length of the tests, and yield its address."""
    name, password = f"durableops_ci_{os.getpid()}", secrets.token_hex(16)
    role = sql.Identifier(name)
    with psycopg.connect(owner, autocommit=True) as server:
        server.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
        server.execute(sql.SQL("GRANT pg_monitor TO {}").format(role))
        try:
            yield f"postgresql://{name}:{password}@{HOST}:5432/postgres"
        finally:
            # The database that the suite copies its own from stays for the next one, which has another role.
            for (database,) in server.execute(_WITH_RIGHTS_OF, [name]).fetchall():
                server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(database)))
            server.execute(sql.SQL("DROP ROLE {}").format(role))


if __name__ == "__main__":
    main()

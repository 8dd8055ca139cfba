"""Embedded servers in one checkout's life: start, reuse, stop, crash; long paths, spaces, and neighbours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis

from durableops.embedded.places import places_for
from durableops.embedded.services import start, stop
from tests.waiting import eventually

pytestmark = pytest.mark.embedded


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "a checkout with 'spaces'"
    folder.mkdir()
    yield folder
    stop(folder)


def test_servers_start_are_reused_keep_data_over_a_stop_and_end(checkout: Path):
    urls = start(checkout, environ={})
    with psycopg.connect(urls["DATABASE_OWNER_URL"]) as owner:
        owner.execute("CREATE TABLE kept AS SELECT 1 AS number")
        assert owner.execute("SHOW fsync").fetchone() == ("on",)
        assert owner.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert owner.execute("SHOW listen_addresses").fetchone() == ("",)
    with redis.Redis.from_url(urls["REDIS_URL"]) as broker:
        broker.set("kept", "1")
        assert broker.config_get("appendonly") == {"appendonly": "yes"}
        assert broker.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    assert start(checkout, environ={}) == urls
    assert stop(checkout) == ["PostgreSQL", "Valkey"]
    assert stop(checkout) == []

    assert start(checkout, environ={}) == urls
    with psycopg.connect(urls["DATABASE_OWNER_URL"]) as owner:
        assert owner.execute("SELECT number FROM kept").fetchone() == (1,)
    with redis.Redis.from_url(urls["REDIS_URL"]) as broker:
        assert broker.get("kept") == b"1"


def test_application_role_cannot_create_databases_or_act_as_the_owner(checkout: Path):
    urls = start(checkout, environ={})
    with psycopg.connect(urls["DATABASE_URL"], autocommit=True) as application:
        for statement in ("CREATE DATABASE x", "SET ROLE durableops_owner", "CREATE TABLE x ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute(statement)


def test_killed_servers_are_started_again(checkout: Path):
    urls = start(checkout, environ={})
    places = places_for(checkout)
    postmaster = int((places.postgres_data / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGKILL)
    os.kill(int((places.home / "valkey.pid").read_text()), signal.SIGKILL)
    eventually(lambda: refuses(urls), hoping_for="both servers to be gone")

    assert start(checkout, environ={}) == urls
    with psycopg.connect(urls["DATABASE_URL"]) as application:
        assert application.execute("SELECT 1").fetchone() == (1,)


def refuses(urls: dict[str, str]) -> bool:
    try:
        psycopg.connect(urls["DATABASE_URL"]).close()
    except psycopg.OperationalError:
        pass
    else:
        return False
    with redis.Redis.from_url(urls["REDIS_URL"]) as broker:
        try:
            broker.ping()
        except redis.ConnectionError:
            return True
    return False


def test_two_that_start_at_once_get_the_same_servers(checkout: Path):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: start(checkout, environ={}), range(2))
    assert first == second


def test_neighbours_share_nothing(checkout: Path, tmp_path: Path):
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    try:
        ours, theirs = start(checkout, environ={}), start(neighbour, environ={})
        assert not set(ours.values()) & set(theirs.values())
        stop(neighbour)
        with psycopg.connect(ours["DATABASE_URL"]) as application:
            assert application.execute("SELECT 1").fetchone() == (1,)
    finally:
        stop(neighbour)


def test_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path):
    checkout = tmp_path.joinpath(*["a rather long folder name"] * 5)
    checkout.mkdir(parents=True)
    try:
        urls = start(checkout, environ={})
        with psycopg.connect(urls["DATABASE_URL"]) as application:
            assert application.execute("SELECT current_user").fetchone() == ("durableops_app",)
    finally:
        stop(checkout)
    assert not places_for(checkout).sockets.exists()


def test_given_servers_are_used_and_nothing_is_started(tmp_path: Path):
    given = {"DATABASE_URL": "postgresql://db.example.org/x", "REDIS_URL": "redis://broker.example.org"}
    assert start(tmp_path, environ=given) == given
    assert list(tmp_path.iterdir()) == []


def test_servers_outlive_the_process_that_started_them(checkout: Path):
    code = "import sys; from pathlib import Path; from durableops.embedded.services import start; "
    code += "print(start(Path(sys.argv[1]), environ={})['DATABASE_URL'])"
    started = subprocess.run(
        [sys.executable, "-c", code, str(checkout)], capture_output=True, text=True, check=True, timeout=60
    )
    with psycopg.connect(started.stdout.strip()) as application:
        assert application.execute("SELECT 1").fetchone() == (1,)

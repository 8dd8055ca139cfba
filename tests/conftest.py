"""Surroundings of the tests: the test database and broker, also as processes see them. Rows: tests/factories.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from durableops.conf import get_conf
from tests import browser
from tests.fixtures import template
from tests.fixtures.cleaning import clean_by_deleting
from tests.fixtures.engine import commits, database, engine, later, media, own_registry, places, second, tenant
from tests.fixtures.sharing import BySharing, longest_first
from tests.fixtures.template import on_database

__all__ = [
    "clean_by_deleting",
    "commits",
    "database",
    "engine",
    "later",
    "media",
    "on_database",
    "own_registry",
    "places",
    "second",
    "tenant",
]

# How fast examples are made and run says how busy the machine is, not whether they hold.
hypothesis_settings.register_profile(
    "unhurried", hypothesis_settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySharing:
    """Share the tests among the processes of `-n` as tests/fixtures/sharing.py says."""
    return BySharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of `-n`: begin with what takes longest."""
    if hasattr(config, "workerinput"):
        longest_first(items)


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The database is there before Django looks for it, and goes by our own hand."""
    return True


@pytest.fixture(scope="session")
def django_db_createdb() -> bool:
    return False


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    request: pytest.FixtureRequest, django_db_modify_db_settings_parallel_suffix: None
) -> None:
    """Before Django looks for the test database: copy it, and end what processes of a killed suite left in it."""
    name = connection.creation._get_test_db_name()  # type: ignore[attr-defined]
    options = request.config.option
    template.end_sessions_in(name)
    if options.create_db or not (options.reuse_db and template.exists(name)):
        template.copy_to(name)


@pytest.fixture(scope="session")
def django_db_setup(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[None]:
    """At the end: end the sessions of threads that outlived their tests, and drop the database unless it is kept."""
    yield
    name = str(connection.settings_dict["NAME"])
    connection.close()
    template.end_sessions_in(name)
    if not request.config.option.reuse_db:
        template.remove(name)


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The test database for processes and second connections, as the role that owns the tables."""
    return on_database(settings.DATABASE_OWNER_URL or settings.DATABASE_URL, connection.settings_dict["NAME"])


@pytest.fixture
def app_role_url(transactional_db: None) -> str:
    """The test database as the application's role, which cannot rewrite history."""
    if not settings.DATABASE_APPLICATION_ROLE:
        pytest.skip("only one database role was given, so nothing separates the application from the owner")
    return on_database(settings.DATABASE_URL, connection.settings_dict["NAME"])


@pytest.fixture
def redis_url() -> str:
    """The broker for processes."""
    return str(settings.REDIS_URL)


@pytest.fixture
def clean_queue(redis_url: str) -> Iterator[redis.Redis]:
    """The broker without anything of this suite's queue in it, before and after; other suites' keys stay."""
    with redis.Redis.from_url(redis_url) as broker:
        forget_queue(broker)
        yield broker
        forget_queue(broker)


def forget_queue(broker: redis.Redis) -> None:
    """Delete this suite's queue, its registries, the jobs they name, and who announced to sleep on it."""
    name = get_conf().queue_name
    keys = list(broker.scan_iter(match=f"rq:*{name}*", count=1000))
    jobs = [b"rq:job:" + job for job in broker.lrange(f"rq:queue:{name}", 0, -1) if isinstance(job, bytes)]
    broker.delete(*keys, *jobs, f"durableops:sleepers:{name}")


@pytest.fixture
def process_environment(request: pytest.FixtureRequest, database_url: str, redis_url: str) -> dict[str, str]:
    """The environment of a real worker, upkeep or command that works on the test database.

    With two roles it runs as the application's, as in production.
    """
    environment = {**os.environ, "REDIS_URL": redis_url, "DJANGO_SETTINGS_MODULE": "durableops.settings"}
    environment.pop("DURABLEOPS_DATABASE_ROLE", None)
    environment.update(DATABASE_URL=database_url, DATABASE_OWNER_URL="")
    if settings.DATABASE_APPLICATION_ROLE:
        environment.update(DATABASE_URL=request.getfixturevalue("app_role_url"), DATABASE_OWNER_URL=database_url)
    return environment


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser for browser tests. None at all is a skip that says so on a desk, and a failure in CI."""
    if found := browser.find():
        return found
    if os.environ.get("CI"):
        pytest.fail(f"no Chromium, and CI does not run without the browser tests. {browser.REMEDY}")
    pytest.skip(f"NO BROWSER. {browser.REMEDY}")

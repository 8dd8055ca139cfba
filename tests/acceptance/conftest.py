"""The record and the processes of acceptance tests: one pool for each module, an invariants check after each test."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import redis
from django.db import connection
from pytest_django import DjangoDbBlocker

from durableops.authoring import registry
from durableops.authoring.definitions import ToolDefinition, WorkflowDefinition
from tests.acceptance.company import Company, is_asked_for
from tests.acceptance.pool import Desk, Pool, assert_invariants, make_desk
from tests.conftest import forget_queue
from tests.fixtures.cleaning import delete_everything


@pytest.fixture(scope="module")
def definitions() -> Iterator[None]:
    """The scripted workflows, in a registry that ends with the module."""
    with registry.isolated() as known:
        for name in ("workflows", "company"):
            module = importlib.import_module(f"tests.acceptance.scripted.{name}")
            for found in vars(module).values():
                if isinstance(found, ToolDefinition):
                    known.add_tool(found)
                elif isinstance(found, WorkflowDefinition):
                    known.add_workflow(found)
        yield


@pytest.fixture(scope="module")
def record(django_db_setup: None, django_db_blocker: DjangoDbBlocker, definitions: None) -> Iterator[None]:
    """The test database for a whole module: processes go on from test to test, so nothing is rolled back between."""
    with django_db_blocker.unblock():
        yield
        delete_everything()
        connection.close()


@pytest.fixture
def _django_db_helper(record: None) -> None:
    """In place of pytest-django's: nothing is emptied between two tests of a module, for its processes live on."""


@pytest.fixture(scope="module")
def broker(record: None) -> Iterator[redis.Redis]:
    """The suite's broker without bells of other tests."""
    from django.conf import settings

    with redis.Redis.from_url(settings.REDIS_URL) as found:
        forget_queue(found)
        yield found
        forget_queue(found)


@pytest.fixture(scope="module")
def pool(broker: redis.Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """One upkeep and one worker, which outlive the tests of the module."""
    found = Pool(tmp_path_factory.mktemp("pool"))
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module", autouse=True)
def company(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company | None]:
    """Runs of others in the pool's workers, if they are asked for; at the end nobody of them has lost anything."""
    if not is_asked_for():
        yield None
        return
    found = Company(tmp_path_factory.mktemp("company"))
    yield found
    found.go_home()


@pytest.fixture
def alone(company: Company | None) -> Iterator[None]:
    """For a test that depends on which worker sleeps: company stays away."""
    with company.away() if company is not None else nullcontext():
        yield


@pytest.fixture
def desk(record: None, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """Where the test starts its runs, under a tenant of its own. Afterwards every promise still holds."""
    made = make_desk("t-" + request.node.originalname.replace("_", "-")[:80], tmp_path)
    yield made
    made.close()
    visited: Pool = request.getfixturevalue("pool")
    visited.send_visitors_home()
    visited.worker.unpark()
    assert_invariants()

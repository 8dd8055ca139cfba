"""Which errors mean that the session has ended, and with it the answer to what was sent last."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
from psycopg import errors

from durableops.engine.database import SPARE_CURSORS, ConnectionLost

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
ALIVE = "SELECT 1"


def fail(cursor, *, error):
    cursor.execute(ALIVE)
    raise error


def test_session_that_the_server_ends_within_a_pipeline_is_lost_and_the_next_is_a_new_one(database):
    def work(cursor):
        with cursor.connection.pipeline():
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            cursor.execute(ALIVE)

    with pytest.raises(ConnectionLost):
        database.retrying(work)
    assert database.fetch(ALIVE) == [(1,)]
    assert database.connects == 2


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("cannot exit pipeline mode while busy"),
        errors.AdminShutdown("terminating connection due to administrator command"),
        errors.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_comes_before_the_socket_tells_is_a_lost_session_all_the_same(database, error):
    with pytest.raises(ConnectionLost):
        database.retrying(partial(fail, error=error))
    assert not database.is_open


@pytest.mark.parametrize("error", [errors.LockNotAvailable, errors.QueryCanceled, errors.PipelineAborted])
def test_error_of_a_statement_costs_no_session(database, error):
    with pytest.raises(error):
        database.retrying(partial(fail, error=error("not now")))
    assert database.is_open


def test_spare_cursors_are_few_and_the_same_each_time(database):
    with database.cursor() as cursor:
        many = cursor.numbered(SPARE_CURSORS + 3)
        assert len({id(one) for one in many}) == SPARE_CURSORS + 3
        assert cursor.numbered(2) == many[:2]
        again = cursor.numbered(SPARE_CURSORS + 3)
    assert (again[:SPARE_CURSORS], again[SPARE_CURSORS] in many) == (many[:SPARE_CURSORS], False)

"""A process that is stopped in the middle of a pipeline keeps nobody from its rows for longer than a lease (C017)."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from durableops.conf import override_conf
from durableops.engine.database import Database
from durableops.upkeep import still_sessions
from durableops.upkeep.rounds import Rounds
from runs.models import Run
from tests.factories import make_run
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def run(transactional_db) -> Run:
    return make_run()


@pytest.fixture
def stopped(run):
    """A session that was sent a statement and never its end, as a process leaves it that is stopped just then."""
    database = Database(name="worker that stands still")
    with database.cursor() as cursor:
        sent = cursor.connection.pgconn
    sent.enter_pipeline_mode()
    sent.send_query_params(b"UPDATE runs_run SET resumes = 7 WHERE id = $1", [str(run.pk).encode()])
    sent.send_flush_request()
    sent.flush()
    yield sent
    sent.finish()


@pytest.fixture
def other(database_url):
    with psycopg.connect(database_url, autocommit=True) as found:
        yield found


def is_locked(other: psycopg.Connection, run: Run) -> bool:
    try:
        other.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE NOWAIT", [run.pk])
    except errors.LockNotAvailable:
        return True
    return False


def test_rows_are_free_again_once_it_has_stood_still_for_a_lease_and_nothing_of_it_is_kept(stopped, run, other):
    eventually(lambda: is_locked(other, run), hoping_for="the lock of the stopped process")
    rounds = Rounds()
    try:
        rounds.make_one()
        assert is_locked(other, run), "it may only be slow"
        with override_conf(lease_seconds=0.0):
            eventually(lambda: still_sessions.end(rounds._database), hoping_for="the end of its session")
        eventually(lambda: not is_locked(other, run), hoping_for="rows that are free again")
    finally:
        rounds._database.close()
    run.refresh_from_db()
    assert run.resumes == 0


def test_sessions_that_work_or_rest_are_left_alone(run):
    database, upkeep = Database(name="worker at work"), Database(name="upkeep")
    try:
        database.fetch("SELECT 1")
        with database.transaction() as cursor:
            cursor.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk])
            with override_conf(lease_seconds=0.0):
                assert still_sessions.end(upkeep) == 0
        assert database.fetch("SELECT 1") == [(1,)]
    finally:
        database.close()
        upkeep.close()


def test_each_sweep_looks_for_them(transactional_db, monkeypatch):
    looked: list[Database] = []
    monkeypatch.setattr(still_sessions, "end", looked.append)
    rounds = Rounds()
    try:
        rounds.make_one()
    finally:
        rounds._database.close()
    assert len(looked) == 1

"""The few connections of a process: lent for a moment, never more than there are, and all doubted when one breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from durableops.engine.bounded import lender
from durableops.engine.bounded.lender import Lender
from durableops.engine.database import ConnectionLost
from durableops.engine.pool import Pool
from tests.fixtures.engine import Background, terminate
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(size=2, name="test pool")
    yield made
    made.close()


def backend(pool: Pool) -> int:
    return int(pool.fetch("SELECT pg_backend_pid()")[0][0])


def test_one_after_another_uses_one_connection(pool):
    assert len({backend(pool) for _ in range(5)}) == 1
    assert pool.open_connections == 1


def test_whoever_finds_none_free_waits_for_one(pool):
    inside, leave = threading.Semaphore(0), threading.Event()

    def hold() -> None:
        with pool.cursor():
            inside.release()
            assert leave.wait(20)

    holders = [Background(hold) for _ in range(2)]
    assert all(inside.acquire(timeout=10) for _ in holders)
    third = Background(lambda: backend(pool))
    eventually(third.is_alive)
    assert pool.open_connections == 2
    leave.set()
    assert third.result() > 0


def test_thread_that_has_one_is_given_the_same_again(pool):
    with pool.transaction() as cursor:
        row = cursor.execute("SELECT pg_backend_pid()").fetchone()
        assert row is not None
        assert backend(pool) == row[0]


def test_break_of_one_makes_the_idle_ones_connect_anew(pool):
    with pool.cursor():
        Background(lambda: backend(pool)).result()
    assert pool.open_connections == 2
    assert terminate("durableops test pool") == 2
    with pytest.raises(ConnectionLost):
        backend(pool)
    pool.reconnect()
    # The other one was cut too, and nobody had to find that out by losing an answer.
    with pool.cursor():
        other = Background(lambda: backend(pool))
        assert other.result() > 0


# What Django's code gets.


class Fake:
    """A connection that only says what the lender asks."""

    def __init__(self) -> None:
        self.closed = False
        self.info = self
        self.transaction_status = psycopg.pq.TransactionStatus.IDLE
        self.is_cut = False

    def execute(self, query: str) -> None:
        if self.is_cut:
            raise psycopg.OperationalError("cut")

    def close(self) -> None:
        self.closed = True


def test_lender_keeps_what_comes_back_clean_and_closes_what_does_not():
    lent: Any = Lender(2)
    clean, dirty = lent.lend(Fake), lent.lend(Fake)
    assert lent.open_connections == 2
    dirty.transaction_status = psycopg.pq.TransactionStatus.INTRANS
    lent.take_back(clean)
    lent.take_back(dirty)
    assert (clean.closed, dirty.closed, lent.open_connections) == (False, True, 1)
    assert lent.lend(Fake) is clean


def test_lender_makes_a_new_one_where_an_idle_one_was_cut():
    lent: Any = Lender(1)
    cut = lent.lend(Fake)
    lent.take_back(cut)
    cut.is_cut = True
    assert lent.lend(Fake) is not cut
    assert cut.closed


def test_lender_says_what_to_do_when_all_stay_in_use(monkeypatch):
    monkeypatch.setattr(lender, "PATIENCE_SECONDS", 0.01)
    lent: Any = Lender(1)
    lent.lend(Fake)
    with pytest.raises(psycopg.OperationalError, match="DURABLEOPS_STEP_CONNECTIONS"):
        lent.lend(Fake)


def test_place_of_a_connection_that_could_not_be_made_is_free_again():
    def fail() -> None:
        raise psycopg.OperationalError("away")

    lent: Any = Lender(1)
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError, match="away"):
            lent.lend(fail)
    assert lent.lend(Fake) is not None


def test_what_was_never_lent_is_not_taken_back():
    lent: Any = Lender(1)
    lent.take_back(Fake())
    assert lent.open_connections == 0

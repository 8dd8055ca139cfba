"""Starting a run once, however many ask at the same moment, and whatever becomes of the first."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from durableops import State, step, workflow
from durableops.engine.start import start
from durableops.errors import StartConflict
from runs.models import Checkpoint, Run, RunEvent
from tests.fixtures.engine import Background, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Given(State):
    n: int = 0


@pytest.fixture(autouse=True)
def one(own_registry):
    @workflow(name="one", version=1, state=Given)
    class One:
        @step
        def a(run: Any):
            pass

    own_registry.check()  # as start-up does, before there is more than one thread


def test_fifty_simultaneous_first_requests_make_one_run(tenant):  # C028
    ready = threading.Barrier(50)

    def ask():
        connection.ensure_connection()
        ready.wait(30)
        return start("one", {"n": 1}, tenant=tenant, actor="a", start_key="K")

    answers = [work.result(60) for work in [Background(ask) for _ in range(50)]]

    assert [answer.created for answer in answers].count(True) == 1
    assert len({answer.run_id for answer in answers}) == 1
    assert Run.objects.count() == Checkpoint.objects.count() == RunEvent.objects.count() == 1


def test_second_request_starts_the_run_when_the_first_is_rolled_back(tenant):  # C035 C034
    inserted, give_up = threading.Event(), threading.Event()

    def first():
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            start("one", {"n": 1}, tenant=tenant, actor="first", start_key="K")
            inserted.set()
            assert give_up.wait(20)
            raise ZeroDivisionError

    loser = Background(first)
    assert inserted.wait(20)
    winner = Background(lambda: start("one", {"n": 1}, tenant=tenant, actor="second", start_key="K"))
    until_blocked()
    give_up.set()
    loser.result()
    answer = winner.result()

    assert answer.created
    run = Run.objects.get()
    assert (run.pk, run.created_by) == (answer.run_id, "second")


def test_second_request_gets_the_run_of_the_first_once_that_commits(tenant):  # C035
    inserted, commit = threading.Event(), threading.Event()

    def first():
        with transaction.atomic():
            found = start("one", {"n": 1}, tenant=tenant, actor="first", start_key="K")
            inserted.set()
            assert commit.wait(20)
        return found

    winner = Background(first)
    assert inserted.wait(20)
    other = Background(lambda: start("one", {"n": 1}, tenant=tenant, actor="second", start_key="K"))
    until_blocked()
    commit.set()
    assert other.result().run_id == winner.result().run_id
    assert not other.value.created
    assert Run.objects.count() == 1


def test_second_request_with_another_input_is_refused_once_the_first_commits(tenant):
    inserted, commit = threading.Event(), threading.Event()

    def first():
        with transaction.atomic():
            start("one", {"n": 1}, tenant=tenant, actor="first", start_key="K")
            inserted.set()
            assert commit.wait(20)

    Background(first)
    assert inserted.wait(20)
    other = Background(lambda: start("one", {"n": 2}, tenant=tenant, actor="second", start_key="K"))
    until_blocked()
    commit.set()
    with pytest.raises(StartConflict):
        other.result()
    assert Run.objects.count() == 1

"""The rounds: one question while nothing happens, exact when a clock comes, and no tenant behind another's crowd."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.upkeep import timers
from durableops.upkeep.rounds import IDLE_SECONDS, Rounds
from runs.models import Run, Wait
from tests.factories import make_run, make_tenant, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def rounds(clean_queue):
    made = Rounds()
    yield made
    made._database.close()


@pytest.fixture
def asked(rounds, monkeypatch):
    """What the rounds ask the database from here on."""
    found: list[str] = []
    real = rounds._database.fetch

    def fetch(query, params=None):
        found.append(query)
        return real(query, params)

    monkeypatch.setattr(rounds._database, "fetch", fetch)
    return found


def test_idle_round_is_one_question_and_its_pause_is_long(rounds, asked, engine):
    rounds._next_sweep = float("inf")
    rounds.make_one()
    asked.clear()
    assert rounds.make_one() == 0
    assert len(asked) == 1
    assert rounds._pause() == IDLE_SECONDS


def test_pause_is_the_usual_one_while_something_runs(rounds):
    make_run(state="running")
    rounds.make_one()
    assert rounds._pause() < IDLE_SECONDS


def test_round_comes_when_the_next_clock_does(rounds):
    make_wait(make_run(state="waiting"), kind="time", name="sleep", due_at=now() + timedelta(seconds=0.4))
    rounds.make_one()
    assert 0.05 <= rounds._pause() <= 0.42


def test_run_that_is_due_later_is_out_of_sight_until_its_time_has_come(rounds, engine):
    from durableops import State, step, workflow

    class Nothing(State):
        pass

    @workflow(name="planned", version=1, state=Nothing)
    class Planned:
        @step
        def only(run):
            return 1

    run = engine.start("planned", start_at=now() + timedelta(hours=1))
    assert run.deferred
    assert engine.drain() == 0
    Run.objects.filter(pk=run.pk).update(due_at=now())
    assert engine.drain() == 0
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.deferred) == ("succeeded", False)


def test_run_that_is_due_at_once_is_in_sight_at_once(engine):
    assert not make_run().deferred


def test_crowd_of_one_tenant_is_woken_in_parts_and_the_others_with_its_first(database):
    """All sleeps of one tenant end in the same moment; the only one of another ended a little later."""
    crowd, small = make_tenant("crowd"), make_tenant("small")
    for _ in range(timers.OF_EACH + 20):
        make_wait(
            make_run(state="waiting", tenant=crowd), kind="time", name="sleep", due_at=now() - timedelta(minutes=1)
        )
    make_wait(make_run(state="waiting", tenant=small), kind="time", name="sleep", due_at=now())
    assert timers.wake_due(database) == timers.OF_EACH + 1
    assert Run.objects.get(tenant=small).state == "queued"
    assert timers.wake_due(database) == 20
    assert not Wait.objects.filter(state="open").exists()


def test_crowd_of_planned_runs_is_brought_in_in_parts_and_the_others_with_its_first(database):  # C073
    crowd, small = make_tenant("crowd"), make_tenant("small")
    for _ in range(timers.OF_EACH + 20):
        make_run(tenant=crowd, deferred=True, due_at=now() - timedelta(hours=1))
    late = make_run(tenant=small, deferred=True, due_at=now() - timedelta(seconds=1))
    early = make_run(tenant=small, deferred=True, due_at=now() + timedelta(hours=1))
    assert timers.bring_in(database) == timers.OF_EACH + 1
    assert not Run.objects.get(pk=late.pk).deferred
    assert Run.objects.get(pk=early.pk).deferred
    assert timers.bring_in(database) == 20

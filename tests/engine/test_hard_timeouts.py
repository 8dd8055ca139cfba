"""A step that does not end itself: its run is taken away first, and what it still says is refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from durableops import Retry, State, step, workflow
from durableops.clock import monotonic
from durableops.engine.hard_timeouts import take_away
from durableops.engine.watch import Watch, Watched, shown
from runs.models import Checkpoint, Run, RunEvent
from tests.factories import events_of, make_run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Nothing(State):
    pass


def watched(run: Run, **over) -> Watched:
    values: dict[str, Any] = {
        "run_id": run.pk,
        "fence": 1,
        "step_id": "a",
        "timeout": 5.0,
        "entered_at": monotonic() - 16.0,
    } | over
    return Watched(**values)


def declare(attempts: int = 2) -> None:
    @workflow(name="hangs", version=1, state=Nothing)
    class Hangs:
        @step(timeout=5.0, retry=Retry(max_attempts=attempts, first_delay=0.0))
        def a(run: Any):
            if run.attempt == 1:
                taken.append(Run.objects.get(pk=run.id))
                assert database_of[0].transacting(lambda c: take_away(c, watched(taken[0])))
            return run.attempt

    taken.clear()


taken: list[Run] = []
database_of: list = []


def test_run_is_taken_from_the_step_and_its_late_result_is_refused(engine, database):  # C001 C050
    database_of[:] = [database]
    declare()
    run = engine.run("hangs")
    assert run.state == "succeeded"
    assert Checkpoint.objects.get(run=run, kind="finish").output == "2"
    assert events_of(run) == [
        "start", "claim", "step_timeout", "kill_step", "late_result_rejected", "claim", "succeed",
    ]  # fmt: skip
    firing = RunEvent.objects.get(run=run, event="step_timeout").data
    assert (firing["clock"], firing["limit_seconds"], firing["next_state"]) == ("step_timeout", 5.0, "queued")
    assert firing["elapsed_seconds"] >= 16
    assert "killed" in firing["trigger"]


def test_last_attempt_fails_the_run(engine, database):
    database_of[:] = [database]
    declare(attempts=1)
    run = engine.run("hangs")
    assert (run.state, run.step_attempts) == ("failed", 1)
    assert run.error_class == "durableops.errors.StepTimeout"
    assert "did not stop" in run.error_message


@pytest.mark.parametrize("over", [{"fence": 0}, {"fence": 2}], ids=["older", "newer"])
def test_run_under_another_fence_is_left(database, over):
    run = make_run(state="running")
    assert not database.transacting(lambda c: take_away(c, watched(run, **over)))
    run.refresh_from_db()
    assert run.state == "running"
    assert events_of(run) == []


@pytest.mark.parametrize("state", ["queued", "succeeded", "waiting"])
def test_run_that_is_not_running_any_more_is_left(database, state):
    run = make_run(state=state, fence=1)
    assert not database.transacting(lambda c: take_away(c, watched(run)))


def test_step_that_this_process_does_not_know_is_not_retried_blindly(database):
    run = make_run(state="running", step_id="a")
    assert database.transacting(lambda c: take_away(c, watched(run)))
    run.refresh_from_db()
    assert run.state == "failed"


def test_run_that_went_on_to_its_next_step_meanwhile_is_left(database):
    run = make_run(state="running", step_id="ab")
    assert not database.transacting(lambda c: take_away(c, watched(run)))


def test_cancelled_run_that_hangs_ends_cancelled(engine, database):  # C013
    """The cancel was accepted; whether the step could be tried again no longer matters."""
    for attempts in (1, 2):
        engine_registry_clear()
        database_of[:] = [database]

        @workflow(name="hangs", version=1, state=Nothing)
        class Hangs:
            @step(timeout=5.0, retry=Retry(max_attempts=attempts, first_delay=0.0))
            def a(run: Any):
                if run.attempt == 1:
                    Run.objects.filter(pk=run.id).update(cancel_requested=True)
                    assert database.transacting(lambda c: take_away(c, watched(Run.objects.get(pk=run.id))))

        assert engine.run("hangs").state == "cancelled"


def engine_registry_clear() -> None:
    from durableops.authoring import registry

    registry.clear()


# The slot the child writes and the parent reads.


def test_what_the_child_writes_is_what_the_parent_reads():
    watch, run_id = Watch().lines[0], uuid.uuid4()
    watch.enter(run_id=run_id, fence=2**40, step_id="a-step", timeout=1.5, entered_at=12345.678)
    assert watch.read() == Watched(run_id=run_id, fence=2**40, step_id="a-step", timeout=1.5, entered_at=12345.678)
    watch.leave()
    assert watch.read() is None


def test_nothing_was_entered_at_first():
    assert Watch().steps() == []


@pytest.mark.parametrize("step_id", ["x" * 48, "x" * 100, "é" * 30], ids=["fits", "longer", "accents"])
def test_step_id_that_is_long_is_read_as_far_as_it_fits(step_id):
    watch = Watch().lines[0]
    watch.enter(run_id=uuid.uuid4(), fence=1, step_id=step_id, timeout=1.0, entered_at=7.25)
    found = watch.read()
    assert found is not None
    assert found.step_id == shown(step_id)
    assert step_id.startswith(found.step_id.rstrip("\ufffd"))
    assert len(found.step_id) >= 24
    assert found.entered_at == 7.25


def test_torn_read_is_no_read():
    watch = Watch().lines[0]
    watch.enter(run_id=uuid.uuid4(), fence=1, step_id="a", timeout=1.0, entered_at=1.0)
    watch._memory[watch._at] ^= 1
    assert watch.read() is None


def test_long_step_id_is_still_found_when_its_time_is_over(engine, database):
    """A name that does not fit the slot must not make the step unknown to whoever enforces its timeout."""
    name = "s" * 90

    def hang(run: Any):
        if run.attempt == 1:
            watch = Watch().lines[0]
            watch.enter(run_id=uuid.UUID(run.id), fence=1, step_id=name, timeout=5.0, entered_at=monotonic() - 16)
            found = watch.read()
            assert found is not None
            assert database.transacting(lambda c: take_away(c, found))
        return run.attempt

    retry = Retry(max_attempts=2, first_delay=0.0)
    workflow(name="long", version=1, state=Nothing)(
        type("Long", (), {"a": step(id=name, timeout=5.0, retry=retry)(hang)})
    )
    assert engine.run("long").state == "succeeded"

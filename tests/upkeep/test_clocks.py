"""Clocks of runs that nobody has in hand: each policy of the deadline and the queue, and what a person says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops.engine import commands
from durableops.upkeep import clocks, timers
from durableops.upkeep.invariants import liveness
from durableops.upkeep.invariants.report import examine
from runs.models import AuditEntry, Run, RunEvent, Wait
from tests.factories import events_of, make_due, make_run, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
MINUTE = timedelta(minutes=1)


def overdue(policy: str, **over) -> Run:
    made: dict[str, Any] = {
        "created_at": now() - 2 * MINUTE,
        "deadline_at": now() - MINUTE,
        "deadline_policy": policy,
    } | over
    return make_run(**made)


def too_long(policy: str) -> Run:
    return make_run(queue_seconds=60.0, queue_policy=policy, queue_expires_at=now() - MINUTE)


def firing_of(run: Run) -> dict:
    return RunEvent.objects.filter(run=run, data__has_key="phase").latest("id").data


def answer(run: Run, *, yes: bool) -> None:
    wait = Wait.objects.get(run=run, clock__gt="", state="open")
    verb = commands.approve if yes else commands.refuse
    verb(wait.pk, tenant=run.tenant, actor="ada", reason="seen", facts_hash=wait.facts_hash)
    run.refresh_from_db()


@pytest.mark.parametrize(
    ("policy", "state", "said"),
    [("fail", "timed_out", "timed_out"), ("cancel", "cancelled", "cancelled"), ("extend", "queued", "queued"),
     ("ask", "waiting", "waiting")],
)  # fmt: skip
def test_deadline_meets_its_policy_and_says_what_comes_next(database, policy, state, said):
    run = overdue(policy)
    assert clocks.fire_deadlines(database) == 1
    run.refresh_from_db()
    firing = firing_of(run)
    assert run.state == state
    assert (firing["clock"], firing["phase"], firing["cause"], firing["next_state"]) == (
        "run_deadline", "queued", "overload", said,
    )  # fmt: skip
    assert (round(firing["limit_seconds"]), round(firing["elapsed_seconds"])) == (60, 120)
    assert clocks.fire_deadlines(database) == 0


def test_deadline_that_may_be_extended_is_extended_once(database):
    run = overdue("extend")
    clocks.fire_deadlines(database)
    run.refresh_from_db()
    assert run.deadline_at is not None
    assert now() < run.deadline_at < now() + 2 * MINUTE
    Run.objects.update(deadline_at=now() - timedelta(seconds=1))
    clocks.fire_deadlines(database)
    run.refresh_from_db()
    assert (run.state, events_of(run)) == ("timed_out", ["run_deadline", "time_out"])


def test_person_who_is_asked_about_a_deadline_gives_it_once_more_as_long(database):
    run = overdue("ask")
    clocks.fire_deadlines(database)
    question = Wait.objects.get(run=run)
    assert (question.kind, question.name, question.clock) == ("approval", "clock:run_deadline", "run_deadline")
    assert "once more as long" in question.question
    answer(run, yes=True)
    assert (run.state, run.deadline_policy) == ("queued", "ask")
    assert run.deadline_at is not None
    assert run.deadline_at > now()
    assert AuditEntry.objects.get().verb == "approve"


def test_person_who_says_no_lets_the_deadline_take_its_course(database):
    run = overdue("ask")
    clocks.fire_deadlines(database)
    answer(run, yes=False)
    assert (run.state, run.error_class) == ("timed_out", "DeadlinePassed")


def test_silence_about_a_deadline_is_a_no(database):
    run = overdue("ask")
    clocks.fire_deadlines(database)
    make_due(run)
    timers.expire_waits(database)
    run.refresh_from_db()
    assert run.state == "timed_out"


@pytest.mark.parametrize("state", ["waiting", "in_doubt", "in_review"])
def test_run_that_waits_for_somebody_stays_where_it_is_while_its_deadline_is_asked_about(database, state):
    run = overdue("ask", state=state)
    if state == "waiting":
        make_wait(run)
    clocks.fire_deadlines(database)
    run.refresh_from_db()
    assert (run.state, run.deadline_policy, firing_of(run)["next_state"]) == (state, "asked", state)
    answer(run, yes=True)
    assert run.state == state
    assert Wait.objects.filter(run=run, state="open", clock="").count() == (state == "waiting")


def test_extended_deadline_answers_the_question_about_it(database):
    run = overdue("ask")
    clocks.fire_deadlines(database)
    commands.extend_deadline(run.pk, tenant=run.tenant, actor="ada", reason="more", deadline_at=now() + MINUTE)
    run.refresh_from_db()
    assert (run.state, run.deadline_policy) == ("queued", "ask")
    assert Wait.objects.get().state == "cancelled"


@pytest.mark.parametrize(
    ("policy", "state"),
    [("fail", "timed_out"), ("cancel", "cancelled"), ("continue", "queued"), ("extend", "queued"), ("ask", "waiting")],
)
def test_queue_wait_meets_its_policy(database, policy, state):  # C055
    run = too_long(policy)
    assert clocks.fire_queue_waits(database) == 1
    run.refresh_from_db()
    firing = firing_of(run)
    assert run.state == state
    assert (firing["clock"], firing["cause"], firing["next_state"]) == ("queue_wait", "overload", state)
    assert (firing["limit_seconds"], round(firing["elapsed_seconds"])) == (60.0, 120)
    assert clocks.fire_queue_waits(database) == 0


def test_queue_clock_begins_anew_each_time_a_run_comes_to_the_queue(database):
    run = make_run(state="waiting", queue_seconds=60.0)
    make_wait(run, kind="time", due_at=now() - MINUTE)
    timers.wake_due(database)
    run.refresh_from_db()
    assert run.queue_expires_at is not None
    assert now() < run.queue_expires_at < now() + 2 * MINUTE


def test_person_lets_a_run_go_on_standing_in_the_queue(database):
    run = too_long("ask")
    clocks.fire_queue_waits(database)
    answer(run, yes=True)
    assert run.state == "queued"
    assert run.queue_expires_at is not None
    assert run.queue_expires_at > now()


def test_wait_that_may_be_extended_is_extended_once_and_then_raises(database):
    run = make_run(state="waiting")
    wait = make_wait(run, opened_at=now() - 2 * MINUTE, expires_at=now() - MINUTE, on_timeout="extend")
    timers.expire_waits(database)
    wait.refresh_from_db()
    assert (wait.state, wait.on_timeout, firing_of(run)["next_state"]) == ("open", "raise", "waiting")
    make_due(run)
    timers.expire_waits(database)
    run.refresh_from_db()
    wait.refresh_from_db()
    assert (run.state, wait.state) == ("queued", "expired")


@pytest.mark.parametrize("yes", [True, False])
def test_person_is_asked_whether_to_go_on_waiting(database, yes):
    run = make_run(state="waiting")
    wait = make_wait(run, opened_at=now() - 2 * MINUTE, expires_at=now() - MINUTE, on_timeout="ask")
    timers.expire_waits(database)
    wait.refresh_from_db()
    assert (wait.state, wait.on_timeout, wait.expires_at) == ("open", "asked", None)
    answer(run, yes=yes)
    wait.refresh_from_db()
    assert (run.state, wait.state) == (("waiting", "open") if yes else ("queued", "expired"))
    assert wait.on_timeout == ("ask" if yes else "raise")


def test_question_about_a_wait_ends_with_the_answer_that_came_all_the_same(database):
    from durableops.engine.inbound import send_event

    run = make_run(state="waiting")
    make_wait(run, opened_at=now() - 2 * MINUTE, expires_at=now() - MINUTE, on_timeout="ask")
    timers.expire_waits(database)
    assert send_event("go", tenant=run.tenant, actor="desk").answered == 1
    run.refresh_from_db()
    assert run.state == "queued"
    assert Wait.objects.get(clock="wait_timeout").state == "cancelled"


def test_children_that_nobody_waits_for_any_longer_are_cancelled(database):
    parent = make_run(state="waiting")
    wait = make_wait(parent, kind="children", name="made", expires_at=now() - MINUTE)
    child = make_run(parent=parent, parent_wait=wait, child_index=0)
    timers.expire_waits(database)
    parent.refresh_from_db()
    child.refresh_from_db()
    assert (parent.state, child.state) == ("queued", "cancelled")
    assert firing_of(parent)["cause"] == "unresponsive_system"


def test_asked_run_breaks_no_invariant(database):
    overdue("ask")
    clocks.fire_deadlines(database)
    Run.objects.update(state_since=now() - MINUTE, deadline_at=now() - 60 * MINUTE)
    broken = [found.check.name for found in examine(database, checks=liveness.CHECKS).findings if found.violations]
    assert broken == []

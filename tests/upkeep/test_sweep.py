"""The sweep: whatever a lost bell, a lost word or a death between two commits left behind is put right."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.engine import bell
from durableops.upkeep import sweep
from durableops.upkeep.rounds import Rounds
from runs.ids import uuid7
from runs.models import InboundEvent, Run, Wait
from tests.factories import make_run, make_tenant, make_wait, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def make_event(**over) -> InboundEvent:
    values = {"tenant": make_tenant(), "name": "go", "payload": "5", "payload_hash": "p", "sent_by": "desk"} | over
    return InboundEvent.objects.create(**values)


def test_open_wait_whose_event_is_there_is_answered(database):
    run = make_run(state="waiting")
    wait = make_wait(run)
    event = make_event()
    assert sweep.match_events(database) == 1
    wait.refresh_from_db()
    run.refresh_from_db()
    assert (wait.state, wait.answer, wait.inbound_event_id, run.state) == ("answered", "5", event.pk, "queued")
    assert sweep.match_events(database) == 0


def test_event_from_before_the_wait_counts_is_left(database):
    make_wait(make_run(state="waiting"), since=now() + timedelta(hours=1))
    make_event()
    assert sweep.match_events(database) == 0


def test_waiting_run_that_waits_for_nothing_is_woken(database):
    limbo = make_run(state="waiting")
    make_wait(limbo, state="answered")
    waits = make_run(state="waiting")
    make_wait(waits)
    assert sweep.wake_answered(database) == 1
    assert Run.objects.get(pk=limbo.pk).state == "queued"
    assert Run.objects.get(pk=waits.pk).state == "waiting"


def test_parent_of_finished_children_is_woken(database):  # C026
    parent = make_run(state="waiting")
    wait = make_wait(parent, kind="children", name="kid")
    for n, state in enumerate(("succeeded", "failed")):
        make_run(state=state, parent=parent, parent_wait=wait, child_index=n)
    assert sweep.sweep(database) == 1
    parent.refresh_from_db()
    assert parent.state == "queued"


def test_parent_with_an_open_child_waits_on(database):
    parent = make_run(state="waiting")
    wait = make_wait(parent, kind="children", name="kid")
    make_run(state="succeeded", parent=parent, parent_wait=wait, child_index=0)
    make_run(state="in_review", parent=parent, parent_wait=wait, child_index=1)
    assert sweep.sweep(database) == 0


def test_open_wait_of_a_finished_run_is_closed(database):
    wait = make_wait(make_run(state="succeeded"))
    sweep.sweep(database)
    assert Wait.objects.get(pk=wait.pk).state == "cancelled"


def test_healthy_record_needs_nothing(database):
    make_run()
    make_run(state="running")
    make_wait(make_run(state="waiting"))
    assert sweep.sweep(database) == 0


def test_lost_bell_is_rung_again_for_sleepers_only(database, clean_queue):  # C008
    make_worker()
    for _ in range(5):
        make_run()
    assert sweep.ring_for_claimable(database) == 0
    bell.announce_sleep(uuid7())
    assert sweep.ring_for_claimable(database) == 1
    assert bell.queue().count == 1


def test_twenty_restarts_leave_one_runnable_row_and_no_more_bells_than_sleepers(clean_queue, tenant):  # C025
    make_worker()
    make_run()
    bell.announce_sleep(uuid7())
    for _ in range(20):
        upkeep = Rounds()
        upkeep.make_one()
        upkeep._database.close()
    assert Run.objects.filter(state="queued").count() == 1
    assert bell.queue().count == 1


def test_idle_round_finds_nothing_and_moves_nothing(clean_queue, tenant):
    make_worker()
    upkeep = Rounds()
    assert upkeep.make_one() == 0
    upkeep._database.close()


def test_round_does_everything_once(clean_queue, tenant, later):
    lost = make_run(state="running", worker=make_worker(ended="its process was killed"))
    due = make_run(state="waiting")
    make_wait(due, kind="time", due_at=now() - timedelta(seconds=1))
    expired = make_run(state="waiting")
    make_wait(expired, expires_at=now() - timedelta(seconds=1), on_timeout="cancel")
    overdue = make_run(deadline_at=now() - timedelta(seconds=1))
    upkeep = Rounds()
    assert upkeep.make_one() >= 4
    upkeep._database.close()
    states = {run.pk: run.state for run in Run.objects.all()}
    assert [states[run.pk] for run in (lost, due, expired, overdue)] == ["queued", "queued", "cancelled", "timed_out"]


def test_no_bell_rings_for_runs_that_no_living_worker_could_take(database, clean_queue):  # C103
    make_worker(plans=[])
    make_run()
    bell.announce_sleep(uuid7())
    assert sweep.ring_for_claimable(database) == 0

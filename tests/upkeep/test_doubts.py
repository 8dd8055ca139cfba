"""Upkeep of doubts: what nobody is at any more is in doubt, and what is settled goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.upkeep import doubts
from runs.models import Doubt, IdempotencyRecord, Run, RunEvent
from tests.factories import events_of, make_checkpoint, make_doubt, make_effect, make_run, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def state_of(effect):
    return IdempotencyRecord.objects.get(pk=effect.pk).state


def test_call_of_a_run_that_has_ended_is_in_doubt(database):
    effect = make_effect(make_run(state="cancelled"))
    assert doubts.put_in_doubt(database) == 1
    assert state_of(effect) == "in_doubt"
    assert Doubt.objects.get().effect_id == effect.pk
    assert events_of(effect.run) == ["effect_in_doubt"]
    assert doubts.put_in_doubt(database) == 0


def test_legacy_call_whose_sender_is_gone_is_in_doubt_although_its_run_goes_on(database):
    gone = make_effect(make_run(state="queued", fence=3), safety="legacy", tool="post", fence=3)
    newer = make_effect(make_run(state="running", fence=4), safety="legacy", tool="pay", fence=3)
    held = make_effect(make_run(state="running", fence=4), safety="legacy", tool="print", fence=4)
    assert doubts.put_in_doubt(database) == 2
    assert [state_of(effect) for effect in (gone, newer, held)] == ["in_doubt", "in_doubt", "intended"]
    assert IdempotencyRecord.objects.filter(holds_system=True).count() == 3


def test_keyed_call_of_an_open_run_is_left_to_it(database):
    effects = [make_effect(make_run(state=state)) for state in ("queued", "running", "in_review")]
    assert doubts.put_in_doubt(database) == 0
    assert {state_of(effect) for effect in effects} == {"intended"}


def test_message_of_a_run_that_has_ended_goes_on(database):
    effect = make_effect(make_run(state="succeeded"), safety="outbox", state="queued")
    assert doubts.put_in_doubt(database) == 0
    assert state_of(effect) == "queued"


def test_effect_that_was_in_doubt_before_doubts_were_rows_gets_one(database):
    effect = make_effect(make_run(state="in_doubt"), state="in_doubt")
    assert doubts.put_in_doubt(database) == 1
    assert Doubt.objects.get().effect_id == effect.pk
    assert doubts.put_in_doubt(database) == 0


def test_run_whose_last_doubt_is_settled_is_woken(database):
    settled, open_ = (make_run(state="in_doubt") for _ in range(2))
    make_doubt(make_effect(settled, state="succeeded"), settled_at=now(), settled_as="happened", settled_by="ann")
    make_doubt(make_effect(open_, state="in_doubt"))
    assert doubts.wake_settled(database) == 1
    assert Run.objects.get(pk=settled.pk).state == "queued"
    assert Run.objects.get(pk=open_.pk).state == "in_doubt"
    assert events_of(settled) == ["settle"]


def test_doubt_that_an_earlier_step_went_on_without_keeps_nobody(database):
    run = make_run(state="in_doubt", head_seq=1)
    make_doubt(make_effect(run, state="in_doubt"))
    make_checkpoint(run, seq=2, effects_through=10**9)
    Run.objects.update(head_seq=2)
    assert doubts.wake_settled(database) == 1


def open_since(hours: float, **over) -> Doubt:
    doubt = make_doubt(make_effect(make_run(state="in_doubt"), state="in_doubt", **over))
    Doubt.objects.filter(pk=doubt.pk).update(since=now() - timedelta(hours=hours))
    return doubt


def test_doubt_reminds_and_escalates_once_and_guesses_nothing(database):
    doubt = open_since(2)
    doubts.look_after(database)
    doubts.look_after(database)
    doubt.refresh_from_db()
    assert (doubt.reminded_at is not None, doubt.escalated_at) == (True, None)
    told = RunEvent.objects.get(run=doubt.run, event="doubt_reminder")
    assert (told.data["clock"], told.data["limit_seconds"], told.data["cause"]) == (
        "doubt",
        3600.0,
        "unresponsive_user",
    )
    assert (told.data["doubt"], told.data["next_state"]) == (doubt.pk, "in_doubt")
    Doubt.objects.update(since=now() - timedelta(hours=25))
    doubts.look_after(database)
    doubts.look_after(database)
    assert events_of(doubt.run) == ["doubt_reminder", "doubt_escalation"]
    doubt.refresh_from_db()
    assert (doubt.settled_at, state_of(doubt.effect)) == (None, "in_doubt")


def test_tool_may_have_a_clock_of_its_own(database):
    patient, hasty = open_since(30, remind_seconds=10**6, escalate_seconds=10**6), open_since(0.1, remind_seconds=60.0)
    doubts.look_after(database)
    assert events_of(patient.run) == []
    assert events_of(hasty.run) == ["doubt_reminder"]


def test_doubt_of_a_run_that_ended_is_reminded_of_too(database):
    doubt = make_doubt(make_effect(make_run(state="cancelled"), state="in_doubt"))
    Doubt.objects.update(since=now() - timedelta(hours=2))
    doubts.look_after(database)
    assert events_of(doubt.run) == ["doubt_reminder"]


def test_settled_doubt_reminds_nobody(database):
    doubt = open_since(200)
    Doubt.objects.update(settled_at=now(), settled_as="happened", settled_by="ann")
    IdempotencyRecord.objects.update(state="succeeded", completed_at=now(), result="1")
    doubts.look_after(database)
    assert "doubt_reminder" not in events_of(doubt.run)


def test_run_whose_probe_is_due_is_woken_unless_it_is_paused(database):
    due, early, paused = (open_since(0).run for _ in range(3))
    Doubt.objects.filter(run__in=[due, paused]).update(probe_at=now() - timedelta(seconds=1))
    Doubt.objects.filter(run=early).update(probe_at=now() + timedelta(hours=1))
    Run.objects.filter(pk=paused.pk).update(paused=True, paused_by="ann")
    assert doubts.ask_probes(database) == 1
    assert [Run.objects.get(pk=run.pk).state for run in (due, early, paused)] == ["queued", "in_doubt", "in_doubt"]

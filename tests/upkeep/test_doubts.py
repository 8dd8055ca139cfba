"""Upkeep of doubts: what nobody is at any more is in doubt, and what is settled goes on."""

from __future__ import annotations

import pytest

from durableops.upkeep import doubts
from runs.models import Doubt, IdempotencyRecord, Run
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

"""What a relay says while nothing is to be delivered."""

from __future__ import annotations

from functools import partial

import pytest

from durableops.engine.relaying.lifetime import Lifetime
from durableops.upkeep.rounds import Rounds
from runs.models import Worker
from tests.factories import make_lane, make_run, now
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def beats(life: Lifetime, seconds: float) -> bool:
    return bool(Worker.objects.get(pk=life.id).heartbeat_seconds == seconds)


def test_idle_relay_promises_fewer_beats_and_a_busy_one_its_usual_ones(engine):
    held = [0]
    life = Lifetime(name="relay of tests", in_hand=lambda: held[0], heard=lambda: None)
    life.begin(concurrency=1, destinations=[], give_up=life.is_lost)
    try:
        for in_hand, beat in ((0, 2.5), (1, 0.25)):
            held[0] = in_hand
            eventually(partial(beats, life, beat), hoping_for=f"a beat of {beat} s")
    finally:
        life.end("stopped")


def test_rounds_of_upkeep_see_a_message_that_is_ready_and_tell_their_relay(engine, monkeypatch):
    poked = []
    rounds = Rounds()
    assert rounds._relay is not None
    monkeypatch.setattr(rounds._relay, "poke", lambda: poked.append(1))
    try:
        rounds.make_one()
        assert poked == []
        make_lane(make_run(state="succeeded"), depth=1, due_at=now())
        rounds.make_one()
        assert poked == [1]
    finally:
        rounds._database.close()

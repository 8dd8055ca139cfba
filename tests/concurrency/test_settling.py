"""Two people at one doubt: one wins, the other is told what happened, and nothing happens twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections

from durableops.engine import doubts, settling
from durableops.engine.settlements import Settlement
from durableops.errors import TransitionRefused
from runs.models import AuditEntry, Doubt, IdempotencyRecord, Run
from tests.factories import events_of, make_doubt, make_effect, make_run
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def in_doubt() -> Doubt:
    return make_doubt(make_effect(make_run(state="in_doubt"), state="in_doubt", tool="charge", resource="order 7"))


def settle(doubt: Doubt, how: str, actor: str) -> Any:
    try:
        settlement = Settlement(how=how)
        return settling.settle(doubt.pk, tenant=doubt.tenant, actor=actor, reason="asked", settlement=settlement)
    except TransitionRefused as refused:
        return refused
    finally:
        connections.close_all()


@pytest.mark.parametrize("hows", [("happened", "give_up"), ("give_up", "happened"), ("happened", "happened")])
def test_of_two_people_who_settle_at_once_one_wins_and_the_other_hears_who(tenant, clean_queue, second, hows):  # C046
    doubt = in_doubt()
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [doubt.run_id]):
        first = Background(lambda: settle(doubt, hows[0], "ann"))
        until_blocked(count=1)
        other = Background(lambda: settle(doubt, hows[1], "bob"))
        until_blocked(count=2)
    answers = [first.result(), other.result()]
    refused = [answer for answer in answers if isinstance(answer, TransitionRefused)]
    assert len(refused) == 1
    doubt.refresh_from_db()
    assert f"was settled as {doubt.settled_as.replace('_', ' ')} by {doubt.settled_by}" in str(refused[0])
    assert Run.objects.get(pk=doubt.run_id).state == "queued"
    assert events_of(doubt.run_id).count("settle") == 2  # what was said, and the move
    verbs = sorted(AuditEntry.objects.values_list("verb", flat=True))
    assert verbs == ["settle", "settle (refused)"]


def test_double_click_settles_once(tenant, clean_queue):  # C046
    doubt = in_doubt()
    barrier = threading.Barrier(8)

    def click() -> Any:
        barrier.wait()
        return settle(doubt, "happened", "ann")

    answers = [one.result() for one in [Background(click) for _ in range(8)]]
    assert sum(not isinstance(answer, TransitionRefused) for answer in answers) == 1
    assert AuditEntry.objects.filter(verb="settle").count() == 1


def test_settling_while_the_run_is_cancelled_loses_neither(tenant, clean_queue, second):
    doubt = in_doubt()
    with holding(second, "UPDATE runs_run SET state = 'cancelled', finished_at = now() WHERE id = %s", [doubt.run_id]):
        settling_it = Background(lambda: settle(doubt, "happened", "ann"))
        until_blocked()
    settling_it.result()
    assert Run.objects.get(pk=doubt.run_id).state == "cancelled"
    assert IdempotencyRecord.objects.get().state == "succeeded"


def test_two_people_who_claim_at_once_are_not_both_on_it(tenant, clean_queue):
    doubt = in_doubt()
    barrier = threading.Barrier(2)

    def claim(actor: str) -> bool:
        barrier.wait()
        try:
            doubts.claim(doubt.pk, tenant=doubt.tenant, actor=actor)
        except TransitionRefused:
            return False
        finally:
            connections.close_all()
        return True

    people = [Background(lambda: claim("ann")), Background(lambda: claim("bob"))]
    assert sorted(person.result() for person in people) == [False, True]

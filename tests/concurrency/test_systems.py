"""Two people at one legacy system: one wins, the other is told what happened, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from durableops.engine import systems
from durableops.errors import TransitionRefused
from runs.models import AuditEntry, IdempotencyRecord, System
from tests.factories import make_effect, make_run, make_tenant
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
HELD = "SELECT 1 FROM runs_system WHERE name = 'ledger' FOR UPDATE"


@pytest.fixture
def queue(tenant, clean_queue) -> list[IdempotencyRecord]:
    """Four calls that wait for their turn."""
    System.objects.create(name="ledger")
    return [make_effect(make_run(), state="queued", safety="legacy", tool="post", system="ledger") for _ in range(4)]


def order() -> list[int]:
    return list(IdempotencyRecord.objects.order_by("queue_order").values_list("pk", flat=True))


def at_once(second: Any, works: list[Callable[[], Any]]) -> tuple[list[Any], list[TransitionRefused]]:
    """All of them wait for the system's row, in this order; what was done, and what was refused."""

    def tried(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except TransitionRefused as refused:
            return refused

    people = []
    with holding(second, HELD):
        for number, work in enumerate(works, 1):
            people.append(Background(partial(tried, work)))
            until_blocked(count=number)
    answers = [person.result() for person in people]
    refused = [answer for answer in answers if isinstance(answer, TransitionRefused)]
    return [answer for answer in answers if answer not in refused], refused


def by(actor: str) -> dict[str, Any]:
    return {"tenant": make_tenant(), "actor": actor, "reason": f"{actor} said so"}


def test_of_two_who_pause_at_once_one_does_and_the_other_hears_who(queue, second):
    done, refused = at_once(second, [partial(systems.pause, "ledger", **by(name)) for name in ("ann", "bob")])
    assert (len(done), len(refused)) == (1, 1)
    paused = System.objects.get()
    assert f"{paused.paused_by} paused it already" in str(refused[0])
    assert AuditEntry.objects.get().actor == paused.paused_by


def test_of_two_who_resume_at_once_one_does_and_the_other_hears_who(queue, second):
    systems.pause("ledger", **by("ann"))
    done, refused = at_once(second, [partial(systems.resume, "ledger", **by(name)) for name in ("bob", "cat")])
    assert (len(done), len(refused)) == (1, 1)
    resumed = AuditEntry.objects.get(verb="resume_system")
    assert f"{resumed.actor} let it go on at" in str(refused[0])
    assert not System.objects.get().paused


def test_double_click_moves_a_call_once(queue, second):  # C046
    call, before = queue[-1], order()
    shown = systems.place_hash(call.pk, before)
    asked = {**by("ann"), "to": "up", "plan_hash": shown}
    # The run's row comes first in the order of locks: the second click waits there.
    done, refused = at_once(second, [partial(systems.move, call.pk, **asked) for _ in range(2)])
    assert (len(done), len(refused)) == (1, 1)
    assert "has changed since it was shown" in str(refused[0])
    assert order() == [before[0], before[1], before[3], before[2]]
    assert sorted(AuditEntry.objects.values_list("verb", flat=True)) == ["move_call", "move_call (refused)"]


def test_two_who_move_different_calls_of_one_page_do_not_both_move_past_each_other(queue, second):
    before = order()
    done, refused = at_once(
        second,
        [
            partial(systems.move, pk, **by(name), to="first", plan_hash=systems.place_hash(pk, before))
            for pk, name in ((before[2], "ann"), (before[3], "bob"))
        ],
    )
    assert (len(done), len(refused)) == (1, 1)
    assert sorted(order()) == sorted(before)
    assert order()[0] in before[2:]


def test_call_that_goes_on_the_wire_while_it_is_moved_is_not_moved_and_that_is_told(queue, second):
    call = queue[-1]
    goes = "UPDATE runs_effect SET state = 'intended', holds_system = true WHERE id = %s"
    with holding(second, HELD):
        second.execute(goes, [call.pk])
        moving = Background(partial(systems.move, call.pk, **by("ann"), to="first"))
        until_blocked()
    with pytest.raises(TransitionRefused, match="is intended; only a call that waits"):
        moving.result()
    assert order() == [one.pk for one in queue]

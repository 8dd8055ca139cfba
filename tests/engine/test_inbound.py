"""Events from outside: stored first, once for each key, and refused with a sentence when they are bad."""

from __future__ import annotations

from typing import Any

import pytest

from durableops.engine.inbound import send_event
from durableops.errors import EventConflict, InputRefused
from runs.models import InboundEvent, Run, Wait
from tests.factories import make_run, make_tenant, make_wait

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def send(tenant, clean_queue):
    return lambda name="go", **options: send_event(name, tenant=tenant, actor="desk", **options)


def waiting(**over) -> Wait:
    return make_wait(make_run(state="waiting"), **over)


def test_event_is_kept_with_its_sender_and_payload(send):
    received = send(correlation="doc", payload={"a": [1, None]}, event_key="e1")
    event = InboundEvent.objects.get(pk=received.event_id)
    assert (received.created, received.answered) == (True, 0)
    assert (event.name, event.correlation, event.event_key, event.payload, event.sent_by) == (
        "go", "doc", "e1", '{"a":[1,null]}', "desk",
    )  # fmt: skip


def test_event_sent_twice_under_one_key_is_one_event(send):
    wait = waiting()
    first, second = send(payload=1, event_key="e1"), send(payload=1, event_key="e1")
    assert (first.event_id, first.created, second.created) == (second.event_id, True, False)
    event = InboundEvent.objects.get()
    assert (event.answered_waits, event.duplicates) == (1, 1)
    wait.refresh_from_db()
    assert wait.state == "answered"


@pytest.mark.parametrize("other", [{"payload": 2}, {"correlation": "x"}])
def test_same_key_with_other_content_is_a_conflict_and_changes_nothing(send, other):
    send(payload=1, event_key="e1")
    with pytest.raises(EventConflict, match="other content"):
        send(**({"payload": 1, "event_key": "e1"} | other))
    assert InboundEvent.objects.get().duplicates == 0


def test_same_content_in_another_order_is_the_same_event(send):
    send(payload={"a": 1, "b": 2}, event_key="e")
    assert not send(payload={"b": 2, "a": 1}, event_key="e").created


def test_without_a_key_each_sending_is_an_event(send):
    send()
    send()
    assert InboundEvent.objects.count() == 2


def test_keys_of_two_names_and_two_tenants_do_not_meet(send):
    send("a", event_key="k")
    send("b", event_key="k")
    send_event("a", tenant=make_tenant("other"), actor="x", event_key="k")
    assert InboundEvent.objects.count() == 3


def test_event_answers_one_wait_of_a_run_and_every_run(send):
    first = make_run(state="waiting")
    waits = [make_wait(first, author_key="1"), make_wait(first, author_key="2"), waiting()]
    assert send().answered == 2
    states = [Wait.objects.get(pk=wait.pk).state for wait in waits]
    assert states == ["answered", "open", "answered"]


def test_event_answers_a_wait_of_a_run_that_still_runs_and_wakes_nobody(send):
    run = make_run(state="running")
    wait = make_wait(run)
    assert send(payload=1).answered == 1
    wait.refresh_from_db()
    assert wait.answer == "1"
    assert Run.objects.get(pk=run.pk).state == "running"


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "failed"])
def test_finished_run_is_not_answered(send, state):
    make_wait(make_run(state=state))
    assert send().answered == 0


def test_wait_of_another_kind_is_not_answered(send):
    waiting(kind="approval")
    assert send().answered == 0


BAD: dict[str, dict[str, Any]] = {
    "empty name": {"name": ""},
    "long name": {"name": "x" * 10_000},
    "nul in the name": {"name": "a\0b"},
    "newline in the correlation": {"correlation": "a\nb"},
    "long correlation": {"correlation": "x" * 256},
    "surrogate in the key": {"event_key": "\ud800"},
    "empty key": {"event_key": ""},
    "nul": {"payload": "a\0"},
    "surrogate": {"payload": ["\ud800"]},
    "nan": {"payload": {"a": float("nan")}},
    "infinity": {"payload": float("inf")},
    "big integer": {"payload": 2**53 + 1},
    "no JSON": {"payload": {"a": object()}},
    "too large": {"payload": "x" * (2**20 + 1)},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_event_is_refused_with_a_sentence_and_not_stored(send, what):
    wait = waiting()
    with pytest.raises(InputRefused) as refused:
        send(**BAD[what])
    assert 20 < len(refused.value.detail) < 1000
    assert not InboundEvent.objects.exists()
    assert Wait.objects.get(pk=wait.pk).state == "open"


def test_payload_nested_a_thousand_levels_is_refused(send):
    payload: object = 1
    for _ in range(1000):
        payload = {"a": payload}
    with pytest.raises(InputRefused):
        send(payload=payload)

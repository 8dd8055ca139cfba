from __future__ import annotations

from runs.models import InboundEvent, Wait
from runs.states import State
from tests import factories
from tests.api.clients import read


def test_event_answers_the_run_that_waits_for_it(caller, acme):
    run = factories.make_run(state=State.WAITING, tenant=acme)
    factories.make_wait(run, name="paid", correlation="order-7")
    response = caller.post("/events", {"name": "paid", "correlation": "order-7", "payload": {"amount": 5}})
    assert response.status_code == 201
    assert read(response)["answered"] == 1
    run.refresh_from_db()
    assert run.state == State.QUEUED
    assert Wait.objects.get().answer == '{"amount":5}'


def test_event_sent_twice_under_one_key_is_one_event(caller):
    first = caller.post("/events", {"name": "paid"}, key="evt-1")
    second = caller.post("/events", {"name": "paid"}, key="evt-1")
    assert (first.status_code, second.status_code) == (201, 200)
    assert "Idempotent-Replayed" not in first
    assert second["Idempotent-Replayed"] == "true"
    assert read(first)["id"] == read(second)["id"]
    assert InboundEvent.objects.get().duplicates == 1


def test_key_with_another_content_is_a_conflict(caller):
    caller.post("/events", {"name": "paid", "payload": 1}, key="evt-1")
    response = caller.post("/events", {"name": "paid", "payload": 2}, key="evt-1")
    assert (response.status_code, read(response)["code"]) == (409, "event.conflict")
    assert InboundEvent.objects.get().payload == "1"


def test_event_that_nobody_waits_for_is_kept(caller):
    response = caller.post("/events", {"name": "paid"})
    assert (response.status_code, read(response)["answered"]) == (201, 0)


def test_fault_of_the_payload_is_pointed_at(caller):
    response = caller.post("/events", b'{"name":"paid","payload":{"a":[1,NaN]}}')
    assert (response.status_code, read(response)["path"]) == (400, "/payload/a/1")

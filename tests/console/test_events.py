"""Sending an awaited event by hand."""

from __future__ import annotations

import pytest
from django.urls import reverse

from runs.models import AuditEntry, InboundEvent
from tests.factories import make_run, make_wait


@pytest.fixture
def awaiting():
    run = make_run(state="waiting")
    return run, make_wait(run, name="paid", correlation="INV-7")


def send(browser, run, wait, **given):
    address = reverse("console:send", args=[run.pk, wait.pk])
    return browser.post(address, {"reason": "their system is down", "once": "once-1"} | given)


def test_sent_event_wakes_the_run_and_is_audited(signed_in, awaiting):
    run, wait = awaiting
    assert send(signed_in("operator"), run, wait, payload='{"amount": 3}').status_code == 302
    run.refresh_from_db()
    wait.refresh_from_db()
    event = InboundEvent.objects.get()
    assert (run.state, wait.state) == ("queued", "answered")
    assert (event.payload, event.sent_by, event.correlation) == ('{"amount":3}', "operator", "INV-7")
    assert AuditEntry.objects.get(verb="send_event").reason == "their system is down"


def test_second_click_sends_nothing(signed_in, awaiting):
    operator = signed_in("operator")
    for _ in range(2):
        answer = send(operator, *awaiting)
    page = operator.get(answer["Location"]).content.decode()
    assert "nothing was sent again" in page
    assert (InboundEvent.objects.count(), AuditEntry.objects.count()) == (1, 1)


@pytest.mark.parametrize("payload", ["{", "NaN", "9" * 30, "[" * 5000, '{"a":1,"a":2}'])
def test_payload_that_cannot_be_stored_is_refused_and_stays_in_the_form(signed_in, awaiting, payload):
    answer = send(signed_in("operator"), *awaiting, payload=payload)
    assert (answer.status_code, InboundEvent.objects.count()) == (422, 0)


def test_event_button_stands_only_where_it_may_be_pressed(signed_in, awaiting):
    address = reverse("console:run", args=[awaiting[0].pk])
    assert "Send “paid”…" in signed_in("operator").get(address).content.decode()
    assert "Send “paid”…" not in signed_in("viewer").get(address).content.decode()

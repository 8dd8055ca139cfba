"""The Outbox: destinations and lanes as they are, one message and its verbs; undelivered ones in the Inbox."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from durableops.console import outbox
from runs.models import AuditEntry, OutboxDestination, OutboxLane, OutboxMessage
from tests.factories import make_endpoint, make_lane, make_message, make_run, make_tenant, make_worker, now


@pytest.fixture
def relay():
    return make_worker(kind="relay", destinations=["mail"])


def text_of(browser, address: str) -> str:
    answer = browser.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def at(name: str = "mail") -> str:
    return f"{reverse('console:outbox')}?tenant=acme&destination={name}"


# The list.


def test_empty_outbox_says_what_would_be_here(signed_in, relay):
    assert "Nothing waits to be delivered" in text_of(signed_in("viewer"), reverse("console:outbox"))


def test_page_says_when_no_relay_is_alive(signed_in):
    assert "No relay is alive" in text_of(signed_in("viewer"), reverse("console:outbox"))


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({}, "goes"),
        ({"failures": 9, "failing_since": timedelta(0), "open_until": timedelta(minutes=5)}, "rests"),
        ({"failures": 9, "failing_since": timedelta(0), "open_until": timedelta(minutes=-5)}, "being probed"),
        ({"stopped_by": "ann", "stopped_at": timedelta(0), "stopped_why": "fire"}, "stopped"),
    ],
)
def test_destination_says_how_it_is(signed_in, relay, facts, word):
    make_message(make_run())
    if facts:
        at_their_time = {name: now() + fact if isinstance(fact, timedelta) else fact for name, fact in facts.items()}
        OutboxDestination.objects.create(tenant=make_tenant(), name="mail", **at_their_time)
    page = text_of(signed_in("viewer"), reverse("console:outbox"))
    assert f"{word}</span>" in page
    assert ("ann: fire" in page) == (word == "stopped")


def test_destination_without_a_living_handler_is_told(signed_in):
    make_worker(kind="relay", destinations=["other"])
    make_message(make_run())
    assert "no living relay has a handler" in text_of(signed_in("viewer"), reverse("console:outbox"))


def test_destination_counts_its_messages_lanes_and_what_is_held(signed_in, relay):
    run = make_run()
    make_message(run)
    make_message(run)
    make_message(make_run(), state="poisoned")
    [found] = outbox.destinations([run.tenant_id], now=now())
    assert (found.name, found.lanes, found.messages, found.held, found.under_way) == ("mail", 1, 2, 1, 0)


def test_webhook_is_called_by_its_host_alone(signed_in, relay):
    endpoint, run = make_endpoint(url="https://hooks.example/T000/SECRET?token=x"), make_run()
    make_message(run, lane=make_lane(run, destination=f"webhook:{endpoint.pk}"), endpoint=endpoint)
    page = text_of(signed_in("viewer"), reverse("console:outbox"))
    assert "hooks.example" in page
    assert "SECRET" not in page


def test_lanes_of_a_destination_are_listed_with_their_heads(signed_in, relay):
    run, held = make_run(), make_run()
    first, _ = make_message(run), make_message(run)
    poison = make_message(held, state="poisoned", error_message="no such address")
    page = text_of(signed_in("viewer"), at())
    assert f"/outbox/messages/{first.pk}/" in page
    assert f"/outbox/messages/{poison.pk}/" in page
    assert "no such address" in page


def test_lanes_are_shown_in_pages_by_their_next_try(signed_in, relay, monkeypatch):
    monkeypatch.setattr(outbox, "PER_PAGE", 2)
    lanes = [make_message(make_run()).lane for _ in range(5)]
    for number, lane in enumerate(lanes):
        OutboxLane.objects.filter(pk=lane.pk).update(due_at=now() + timedelta(minutes=number))
    seen, cursor = [], ""
    while True:
        found = outbox.lanes(lanes[0].tenant_id, "mail", cursor=cursor)
        seen.append([one.id for one in found.waiting])
        cursor = found.following
        if not cursor:
            break
    assert seen == [[lanes[0].pk, lanes[1].pk], [lanes[2].pk, lanes[3].pk], [lanes[4].pk]]


@pytest.mark.parametrize("cursor", ["x", "~", "2026-01-01~x", "'; DROP TABLE"])
def test_cursor_that_is_none_begins_at_the_beginning(signed_in, relay, cursor):
    message = make_message(make_run())
    assert [one.message_id for one in outbox.lanes(message.tenant_id, "mail", cursor=cursor).waiting] == [message.pk]


def test_other_tenants_messages_are_not_seen(signed_in, relay):
    message = make_message(make_run(tenant=make_tenant("other")))
    viewer = signed_in("viewer")
    assert "Nothing waits" in text_of(viewer, reverse("console:outbox"))
    assert viewer.get(reverse("console:message", args=[message.pk])).status_code == 404


def test_page_asks_little_however_much_waits(signed_in, relay):
    viewer, counts = signed_in("viewer"), []
    for times in (1, 10):
        for number in range(times):
            run = make_run()
            make_message(run, lane=make_lane(run, destination=f"d{number}" if number else "mail"))
            make_message(make_run(), state="poisoned")
        with CaptureQueriesContext(connection) as asked:
            text_of(viewer, at())
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 12


# Verbs.


def test_destination_is_stopped_with_a_reason_and_let_go_on(signed_in, relay):
    make_message(make_run())
    operator = signed_in("operator")
    stop, go = (reverse("console:destination_verb", args=[verb]) for verb in ("stop_destination", "let_go_on"))
    given = {"tenant": "acme", "destination": "mail", "reason": "they are moving"}
    assert operator.post(stop, given | {"reason": ""}).status_code == 422
    assert operator.post(stop, given).status_code == 302
    assert operator.post(stop, given).status_code == 409
    assert "operator: they are moving" in text_of(operator, at())
    assert operator.post(go, given).status_code == 302
    assert operator.post(go, given).status_code == 409
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == ["stop_destination", "let_destination_go_on"]


def test_message_says_what_trying_it_again_would_do(signed_in):
    run = make_run()
    message = make_message(run, state="poisoned", attempts=3, sendings=2, error_message="gone")
    make_message(run)
    page = text_of(signed_in("operator"), reverse("console:message", args=[message.pk]))
    assert "once more with the same key" in page
    assert "It holds 1 message of its run behind it." in page
    assert "the 1 behind it go on" in page
    unsent = make_message(make_run(), state="poisoned", attempts=3, sendings=0)
    assert "It has never left" in text_of(signed_in("operator"), reverse("console:message", args=[unsent.pk]))


def test_message_is_tried_again_once_and_the_second_press_is_told(signed_in):
    message = make_message(make_run(), state="delivered")
    operator, again = signed_in("operator"), reverse("console:message_verb", args=[message.pk, "redeliver"])
    assert operator.post(again, {"reason": ""}).status_code == 422
    assert operator.post(again, {"reason": "they lost it"}).status_code == 302
    answer = operator.post(again, {"reason": "they lost it"})
    assert answer.status_code == 409
    assert "redeliver" in answer.content.decode()
    assert OutboxMessage.objects.get().state == "pending"


def test_viewer_is_offered_no_verb(signed_in):
    message = make_message(make_run(), state="poisoned")
    page = text_of(signed_in("viewer"), reverse("console:message", args=[message.pk]))
    assert "What can be done" not in page


def test_body_is_shown_to_those_who_see_payloads(signed_in):
    message = make_message(make_run(), body='{"text":"hello","password":"hunter22"}')
    address = reverse("console:message", args=[message.pk])
    hidden, shown = text_of(signed_in("viewer"), address), text_of(signed_in("viewer", sees_payloads=True), address)
    assert "hello" not in hidden
    assert "hello" in shown
    assert "hunter22" not in shown


# What nobody delivered waits in the Inbox.


def test_poisoned_messages_wait_in_the_inbox_oldest_first(signed_in):
    run = make_run()
    first = make_message(run, state="poisoned", error_message="no such address")
    make_message(run)
    second = make_message(make_run(), state="poisoned")
    make_message(make_run(tenant=make_tenant("other")), state="poisoned")
    page = text_of(signed_in("operator"), f"{reverse('console:inbox')}?queue=undelivered")
    assert "<b>2</b> open" in page
    assert "holds 1" in page
    assert "no such address" in page
    assert page.index(f"undelivered-{first.pk}") < page.index(f"undelivered-{second.pk}")


def test_inbox_without_poison_says_how_it_gets_there(signed_in):
    assert "its attempts are used up" in text_of(signed_in("operator"), f"{reverse('console:inbox')}?queue=undelivered")


def test_overview_counts_what_nobody_delivered(signed_in):
    make_message(make_run(), state="poisoned")
    page = text_of(signed_in("viewer"), reverse("console:overview"))
    assert 'Undelivered</span><span class="figure">1' in page

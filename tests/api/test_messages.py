"""Messages of the outbox over the API: nobody took them, they wait, and what is decided about them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs.models import OutboxLane, OutboxMessage
from tests.api.clients import read
from tests.factories import make_lane, make_message, make_run, now

WHY = {"reason": "their side is up again"}


def pages(caller, query: str) -> list[int]:
    seen, following = [], ""
    while following is not None:
        page = read(caller.get(f"/messages?limit=2&{query}&cursor={following}"))
        seen += [one["id"] for one in page["messages"]]
        following = page["next"]
    return seen


def test_poisoned_messages_are_listed_oldest_first_with_why(caller, stranger, acme):
    made = [
        make_message(make_run(tenant=acme), state="poisoned", error_class="Refused", error_message="no such box").pk
        for _ in range(5)
    ]
    make_message(make_run(tenant=stranger.tenant), state="poisoned")
    assert pages(caller, "state=poisoned") == made
    first = read(caller.get("/messages"))["messages"][0]
    assert (first["destination"], first["state"], first["holds_lane"], first["due_at"]) == (
        "mail",
        "poisoned",
        True,
        None,
    )
    assert first["error"] == {"kind": "Refused", "message": "no such box", "fingerprint": ""}


def test_of_what_waits_the_next_of_each_lane_is_listed_by_destination_and_time(caller, stranger, acme):
    heads = {}
    for name, minutes in (("ship", 1), ("mail", 2), ("mail", 1), ("fax", 9), ("mail", 3)):
        run = make_run(tenant=acme)
        lane = make_lane(run, destination=name, due_at=now() + timedelta(minutes=minutes))
        heads[name, minutes] = make_message(run, lane=lane).pk
        make_message(run, lane=lane)
    make_message(make_run(tenant=stranger.tenant))
    assert pages(caller, "state=pending") == [
        heads[key] for key in (("fax", 9), ("mail", 1), ("mail", 2), ("mail", 3), ("ship", 1))
    ]
    shown = read(caller.get("/messages?state=pending"))["messages"][0]
    assert (shown["in_lane"], shown["holds_lane"]) == (2, False)


def test_lane_that_is_held_has_nothing_that_waits(caller, acme):
    run = make_run(tenant=acme)
    poisoned = make_message(run, state="poisoned")
    make_message(run)
    assert pages(caller, "state=pending") == []
    assert caller.post(f"/messages/{poisoned.pk}/skip", WHY).status_code == 200
    assert len(pages(caller, "state=pending")) == 1


def test_poisoned_message_is_tried_again_and_redelivered_only_once_it_left(caller, acme):
    message = make_message(make_run(tenant=acme), state="poisoned", attempts=3)
    refused = caller.post(f"/messages/{message.pk}/redeliver", WHY)
    assert (refused.status_code, read(refused)["code"]) == (409, "run.transition_refused")
    assert caller.post(f"/messages/{message.pk}/retry", WHY).status_code == 200
    assert (OutboxMessage.objects.get().state, OutboxLane.objects.get().held_by) == ("pending", None)
    delivered = make_message(make_run(tenant=acme), state="delivered")
    assert caller.post(f"/messages/{delivered.pk}/redeliver", WHY).status_code == 200
    assert read(caller.get(f"/messages/{delivered.pk}"))["state"] == "pending"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/messages/99999999999999999999", 404),
        ("/messages/1", 404),
        ("/messages?state=delivered", 400),
        ("/messages?cursor=x", 400),
    ],
)
def test_what_is_not_there_is_refused(caller, path, status):
    assert caller.get(path).status_code == status


def test_cursor_of_another_list_is_refused(caller, acme):
    for _ in range(3):
        make_message(make_run(tenant=acme), state="poisoned")
    following = read(caller.get("/messages?limit=1"))["next"]
    assert caller.get(f"/messages?state=pending&cursor={following}").status_code == 400


def test_messages_of_another_tenant_are_not_found(stranger, acme):  # C143
    message = make_message(make_run(tenant=acme), state="poisoned")
    assert stranger.get(f"/messages/{message.pk}").status_code == 404
    assert stranger.post(f"/messages/{message.pk}/skip", WHY).status_code == 404

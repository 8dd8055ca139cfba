"""Webhooks end to end: fanned out to those who want them, signed, sent to checked numbers, and never half believed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from durableops import sealing, step, webhook, workflow
from durableops.engine import endpoints, messages
from durableops.errors import EndpointNotFound, InputRefused
from durableops.upkeep.invariants.report import examine
from durableops.upkeep.resealing import reseal
from runs.models import (
    AuditEntry,
    IdempotencyRecord,
    OutboxBody,
    OutboxDestination,
    OutboxLane,
    OutboxMessage,
    RunEvent,
    WebhookEndpoint,
)
from tests.effects.test_webhooks import signatures
from tests.engine.relaying.conftest import (
    TWICE,
    Numbers,
    let_destinations_rest_enough,
    let_lanes_be_due,
    states,
    subscribed,
)
from tests.engine.relaying.web_receiver import receiving
from tests.factories import events_of, make_tenant, now

pytestmark = [
    pytest.mark.engine, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("this_machine_is_allowed")
]  # fmt: skip

# Delivered.


def test_event_arrives_signed_with_its_data_and_its_id(engine, make_relay, shipped):
    with receiving() as receiver:
        issued = subscribed(engine, receiver.url)
        run = engine.run("ship")
        make_relay().drain()
    [got] = receiver.got
    assert json.loads(got.body)["data"] == {"number": 1, "to": "Zoë"}
    assert json.loads(got.body)["type"] == "order.shipped"
    effect = IdempotencyRecord.objects.get()
    assert got.headers["webhook-id"] == f"msg_{effect.key}"
    assert got.headers["webhook-attempt"] == "1"
    assert got.path == "/in/T000"
    assert signatures(issued.secret, got.headers, got.body)
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
    assert (states(run), effect.state, json.loads(effect.result or "")) == (["delivered"], "succeeded", {"status": 200})


def test_repeat_has_the_same_id_and_body_a_new_time_and_says_that_it_is_one(engine, make_relay, shipped):
    with receiving(500) as receiver:
        issued = subscribed(engine, receiver.url)
        engine.run("ship")
        relay = make_relay()
        relay.drain()
        let_lanes_be_due()
        relay.drain()
    first, second = receiver.got
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    assert second.headers["webhook-attempt"] == "2"
    assert signatures(issued.secret, second.headers, second.body)


def test_event_goes_to_each_endpoint_that_wants_it_and_to_no_other(engine, make_relay, shipped):
    with receiving() as all_, receiving() as shipped_, receiving() as paid, receiving() as off, receiving() as theirs:
        subscribed(engine, all_.url)
        subscribed(engine, shipped_.url, "order.shipped", "order.lost")
        subscribed(engine, paid.url, "order.paid")
        disabled = subscribed(engine, off.url).endpoint
        endpoints.disable(disabled.pk, tenant=engine.tenant, actor="ann", reason="noisy")
        endpoints.create(theirs.url, tenant=make_tenant("other"), actor="olga")
        run = engine.run("ship")
        make_relay().drain()
        assert [len(each.got) for each in (all_, shipped_, paid, off, theirs)] == [1, 1, 0, 0, 0]
    assert all_.keys == shipped_.keys
    assert states(run) == ["delivered", "delivered"]
    assert IdempotencyRecord.objects.count() == 1


def test_event_that_nobody_wants_is_done_at_once(engine, make_relay, shipped):
    run = engine.run("ship")
    effect = IdempotencyRecord.objects.get()
    assert (run.state, effect.state, effect.result) == ("succeeded", "succeeded", "null")
    assert not OutboxLane.objects.exists()
    assert examine(engine.worker.database, grace_seconds=60).passed


def test_effect_succeeds_with_the_last_of_its_messages_and_a_bad_endpoint_delays_no_other(engine, make_relay, shipped):
    with receiving() as good, receiving(500) as bad:
        subscribed(engine, good.url)
        subscribed(engine, bad.url)
        run = engine.run("ship", {"numbers": [1, 2]})
        relay = make_relay()
        relay.drain()
        assert (len(good.got), len(bad.got)) == (2, 1)
        assert [e.state for e in IdempotencyRecord.objects.order_by("id")] == ["queued", "queued"]
        let_lanes_be_due()
        relay.drain()
        assert (len(good.got), len(bad.got)) == (2, 3)
    assert set(states(run)) == {"delivered"}
    assert [e.state for e in IdempotencyRecord.objects.order_by("id")] == ["succeeded", "succeeded"]
    assert examine(engine.worker.database, grace_seconds=60).passed


def test_any_relay_sends_any_event_even_one_it_does_not_know(engine, make_relay, shipped, own_registry):
    with receiving() as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        own_registry.clear()
        make_relay().drain()
        assert len(receiver.got) == 1
    assert states(run) == ["delivered"]


def test_event_with_encrypted_parts_waits_for_a_relay_that_knows_it(engine, make_relay, own_registry):
    event = webhook("login.made", secret=["code"])

    def a(run: Any) -> None:
        run.call(event, resource="x", code="4711")

    workflow(name="log-in", version=1, state=Numbers)(type("LogIn", (), {"a": step(a)}))
    with receiving() as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("log-in")
        own_registry.clear()
        make_relay().drain()
        assert receiver.got == []
        own_registry.add_tool(event)
        let_lanes_be_due()
        make_relay().drain()
        assert json.loads(receiver.got[0].body)["data"] == {"code": "4711"}
    assert states(run) == ["delivered"]
    assert "4711" not in (OutboxBody.objects.get().body or "")


# Not delivered.


@pytest.mark.parametrize("answer", [500, 404, 401, 301, (302, {"location": "http://127.0.0.1:6379/"}, b""), 100_000])
def test_nothing_but_a_2xx_counts_as_delivered(engine, make_relay, shipped, answer):  # C041
    def hang_up(handler: Any) -> None:
        handler.connection.close()

    with receiving(hang_up if answer == 100_000 else answer) as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        relay = make_relay()
        relay.drain()
        assert len(receiver.got) == 1
        assert states(run) == ["pending"]
        let_lanes_be_due()
        relay.drain()
    assert states(run) == ["delivered"]
    assert events_of(run).count("effects_repeated") == 1


def test_message_that_fails_to_the_end_is_poison_that_a_person_can_have_sent_again(engine, make_relay, shipped):
    with receiving(500, 302) as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        relay = make_relay()
        relay.drain()
        let_lanes_be_due()
        relay.drain()
        assert states(run) == ["poisoned"]
        assert "answered 302" in OutboxMessage.objects.get().error_message
        messages.retry_message(OutboxMessage.objects.get().pk, tenant=engine.tenant, actor="ann", reason="mended")
        relay.drain()
    assert states(run) == ["delivered"]


def test_answer_of_the_other_side_is_kept_nowhere_and_errors_name_the_host_alone(engine, make_relay, shipped):  # C146
    with receiving((500, {}, b"SECRET-ANSWER")) as receiver:
        subscribed(engine, receiver.url + "/SECRET-PATH?token=SECRET-QUERY")
        run = engine.run("ship")
        make_relay().drain()
    with receiving() as gone:
        url = gone.url
    WebhookEndpoint.objects.update(url=url + "/SECRET-PATH?token=SECRET-QUERY")
    let_lanes_be_due()
    make_relay().drain()
    kept = [*OutboxMessage.objects.values_list("error_message", flat=True)]
    kept += OutboxDestination.objects.values_list("error_message", flat=True)
    kept += IdempotencyRecord.objects.values_list("error_message", flat=True)
    kept += [f"{e.reason} {e.data}" for e in RunEvent.objects.filter(run=run)]
    kept += [f"{a.before} {a.after}" for a in AuditEntry.objects.all()]
    assert "no connection to http://127.0.0.1" in " ".join(kept)
    assert not any("SECRET" in text for text in kept)


def test_endpoint_that_is_gone_for_good_is_disabled(engine, make_relay, shipped):
    with receiving(410) as receiver:
        endpoint = subscribed(engine, receiver.url).endpoint
        run = engine.run("ship", {"numbers": [1, 2]})
        relay = make_relay()
        relay.drain()
        let_lanes_be_due()
        relay.drain()
        assert len(receiver.got) == 1
    endpoint.refresh_from_db()
    assert endpoint.enabled is False
    assert "410" in endpoint.disabled_why
    assert AuditEntry.objects.get(verb="disable_endpoint").actor == "relay"
    assert states(run) == ["poisoned", "pending"]
    assert engine.run("ship").state == "succeeded"
    assert OutboxMessage.objects.count() == 2


def test_retry_after_of_an_endpoint_makes_it_rest(engine, make_relay, shipped):
    with receiving((429, {"retry-after": "50"}, b"")) as receiver:
        subscribed(engine, receiver.url)
        engine.run("ship")
        engine.run("ship")
        make_relay(concurrency=1).drain()
        assert len(receiver.got) == 1
    until = OutboxDestination.objects.get().open_until
    assert until is not None
    assert 40 < (until - now()).total_seconds() <= 51


def test_answer_that_comes_too_slowly_is_no_answer(engine, make_relay, shipped, own_registry):
    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)

    own_registry.clear()
    event = webhook("order.shipped", retry=TWICE, timeout=0.3)
    workflow(name="ship", version=1, state=Numbers)(
        type("Ship", (), {"a": step(id="a")(lambda run: run.call(event, resource="1") and None)})
    )
    with receiving(drip) as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        make_relay().drain()
        assert len(receiver.got) == 1
    assert states(run) == ["pending"]
    assert OutboxMessage.objects.get().error_class == "CallTimeout"


def test_long_answer_is_not_read_to_its_end(engine, make_relay, shipped):
    with receiving((200, {}, b"x" * 20_000_000)) as receiver:
        subscribed(engine, receiver.url)
        run = engine.run("ship")
        began = time.monotonic()
        make_relay().drain()
        assert time.monotonic() - began < 5
    assert states(run) == ["delivered"]


# Changed by people.


def test_rotated_secret_signs_beside_the_old_one_until_its_time_is_over(engine, make_relay, shipped):
    with receiving() as receiver:
        old = subscribed(engine, receiver.url)
        new = endpoints.rotate(old.endpoint.pk, tenant=engine.tenant, actor="ann")
        assert old.secret != new.secret
        engine.run("ship")
        relay = make_relay()
        relay.drain()
        WebhookEndpoint.objects.update(former_until=now())
        engine.run("ship")
        relay.drain()
    during, after = receiver.got
    assert signatures(old.secret, during.headers, during.body)
    assert signatures(new.secret, during.headers, during.body)
    assert not signatures(old.secret, after.headers, after.body)
    assert signatures(new.secret, after.headers, after.body)


def test_secret_is_stored_encrypted_and_told_in_no_audit_entry(engine):
    issued = subscribed(engine, "http://127.0.0.1:1/in")
    row = WebhookEndpoint.objects.get()
    assert issued.secret not in row.secret
    again = endpoints.rotate(row.pk, tenant=engine.tenant, actor="ann")
    said = [f"{entry.before} {entry.after} {entry.reason}" for entry in AuditEntry.objects.all()]
    assert len(said) == 2
    assert not any(secret in text for secret in (issued.secret, again.secret) for text in said)


def test_secrets_are_encrypted_anew_when_the_installation_has_a_new_key(engine, make_relay, shipped, settings):
    settings.DURABLEOPS_ENCRYPTION_KEYS = [before := sealing.new_key()]
    with receiving() as receiver:
        old = subscribed(engine, receiver.url)
        new = endpoints.rotate(old.endpoint.pk, tenant=engine.tenant, actor="ann")
        settings.DURABLEOPS_ENCRYPTION_KEYS = [anew := sealing.new_key(), before]
        assert reseal(engine.worker.database).endpoints == 1
        assert reseal(engine.worker.database).endpoints == 0
        settings.DURABLEOPS_ENCRYPTION_KEYS = [anew]
        engine.run("ship")
        make_relay().drain()
        assert all(signatures(each.secret, receiver.got[0].headers, receiver.got[0].body) for each in (old, new))


def test_disabled_endpoint_keeps_what_waits_and_gets_it_when_it_is_enabled(engine, make_relay, shipped):
    with receiving() as receiver:
        endpoint = subscribed(engine, receiver.url).endpoint
        run = engine.run("ship")
        who = {"tenant": engine.tenant, "actor": "ann", "reason": "maintenance"}
        assert endpoints.disable(endpoint.pk, **who) is True
        assert endpoints.disable(endpoint.pk, **who) is False
        relay = make_relay()
        relay.drain()
        assert receiver.got == []
        assert endpoints.enable(endpoint.pk, **who) is True
        let_destinations_rest_enough()
        relay.drain()
        assert len(receiver.got) == 1
    assert states(run) == ["delivered"]


def test_removed_endpoints_messages_are_skipped_one_by_one_and_told(engine, make_relay, shipped):
    with receiving() as receiver, receiving() as other:
        endpoint = subscribed(engine, receiver.url).endpoint
        both = engine.run("ship")
        subscribed(engine, other.url)
        run = engine.run("ship", {"numbers": [1, 2]})
        endpoints.remove(endpoint.pk, tenant=engine.tenant, actor="ann", reason="gone")
        make_relay().drain()
        assert (len(receiver.got), len(other.got)) == (0, 2)
    assert sorted(states(run)) == ["delivered", "delivered", "skipped", "skipped"]
    assert [e.state for e in IdempotencyRecord.objects.order_by("id")] == ["given_up", "succeeded", "succeeded"]
    assert events_of(both).count("message_skipped") == 1
    assert examine(engine.worker.database, grace_seconds=60).passed
    assert list(endpoints.living(engine.tenant).values_list("url", flat=True)) == [other.url]


def test_changed_address_is_where_waiting_messages_go(engine, make_relay, shipped):
    with receiving() as old, receiving() as new:
        endpoint = subscribed(engine, old.url).endpoint
        engine.run("ship")
        endpoints.change(
            endpoint.pk,
            tenant=engine.tenant,
            actor="ann",
            url=new.url,
            event_types=["order.shipped"],
            description="new",
        )
        make_relay().drain()
        assert (len(old.got), len(new.got)) == (0, 1)
    entry = AuditEntry.objects.get(verb="change_endpoint")
    assert entry.after["event_types"] == ["order.shipped"]


@pytest.mark.parametrize("verb", [endpoints.rotate, endpoints.disable, endpoints.remove, endpoints.enable])
def test_endpoint_of_another_tenant_is_not_found(engine, verb):
    endpoint = endpoints.create("http://127.0.0.1:1/", tenant=make_tenant("other"), actor="olga").endpoint
    with pytest.raises(EndpointNotFound):
        verb(endpoint.pk, tenant=engine.tenant, actor="ann", reason="mine")


def test_endpoints_and_event_types_are_bounded(engine, monkeypatch):
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 1)
    subscribed(engine, "http://127.0.0.1:1/")
    with pytest.raises(InputRefused, match="1 endpoints already"):
        subscribed(engine, "http://127.0.0.1:2/")
    with pytest.raises(InputRefused, match="event type"):
        subscribed(engine, "http://127.0.0.1:2/", "a\nb")
    with pytest.raises(InputRefused, match="at most 100"):
        subscribed(engine, "http://127.0.0.1:2/", *(str(n) for n in range(101)))

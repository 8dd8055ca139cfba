"""Webhooks: an admin's business; a secret shown once; what was delivered, and what can be done with an endpoint."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from durableops.conf import override_conf
from runs.models import AuditEntry, WebhookEndpoint
from tests.factories import make_endpoint, make_lane, make_message, make_run, make_tenant

ADDRESS = "/webhooks/acme/"


@pytest.fixture(autouse=True)
def this_machine_is_allowed():
    with override_conf(webhook_allow="127.0.0.1/32"):
        yield


@pytest.fixture
def admin(signed_in):
    return signed_in("admin")


def secret_of(answer) -> str:
    found = re.search(r'shown once: <b class="mono">(whsec_[^<]+)', answer.content.decode())
    assert found is not None
    return found[1]


def test_new_endpoint_shows_its_secret_once(admin):
    given = {"url": "http://127.0.0.1:9/in", "event_types": "order.shipped, order.lost", "description": "the shop"}
    answer = admin.post(ADDRESS, given)
    secret = secret_of(answer)
    endpoint = WebhookEndpoint.objects.get()
    assert (endpoint.event_types, endpoint.description, endpoint.created_by) == (
        ["order.shipped", "order.lost"], "the shop", "admin",
    )  # fmt: skip
    listed = admin.get(ADDRESS).content.decode()
    assert "order.shipped, order.lost" in listed
    assert secret not in listed
    assert AuditEntry.objects.get().verb == "create_endpoint"


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "ftp://x", "", "http://10.0.0.1/"])
def test_address_that_may_not_be_used_is_refused_and_what_was_typed_stays(admin, url):
    answer = admin.post(ADDRESS, {"url": url, "event_types": "order.shipped"})
    assert answer.status_code == 422
    assert 'value="order.shipped"' in answer.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_endpoint_is_changed_rotated_disabled_enabled_and_removed(admin):
    endpoint = make_endpoint(url="http://127.0.0.1:9/in")
    address = reverse("console:webhook", args=["acme", endpoint.pk])
    change = {"act": "change", "url": "http://127.0.0.1:9/new", "event_types": "a b", "description": "d"}
    assert admin.post(address, change).status_code == 302
    assert secret_of(admin.post(address, {"act": "rotate", "hours": "24"}))
    assert "Two secrets sign until" in admin.get(address).content.decode()
    assert admin.post(address, {"act": "rotate", "hours": "x"}).status_code == 422
    assert admin.post(address, {"act": "disable", "reason": ""}).status_code == 422
    assert admin.post(address, {"act": "disable", "reason": "noisy"}).status_code == 302
    assert "noisy" in admin.get(address).content.decode()
    assert admin.post(address, {"act": "enable"}).status_code == 302
    assert admin.post(address, {"act": "remove", "reason": "moved"}).status_code == 302
    assert admin.get(address).status_code == 404
    endpoint.refresh_from_db()
    assert endpoint.removed_at is not None
    verbs = [e.verb for e in AuditEntry.objects.filter(target_kind="webhook endpoint").order_by("id")]
    assert verbs == [
        "change_endpoint", "rotate_endpoint_secret", "disable_endpoint", "enable_endpoint", "remove_endpoint",
    ]  # fmt: skip
    assert admin.post(address, {"act": "explode"}).status_code == 404


def test_last_deliveries_are_listed_newest_first_in_pages(admin, monkeypatch):
    from durableops.console import outbox

    monkeypatch.setattr(outbox, "PER_PAGE", 2)
    endpoint = make_endpoint()
    rows = []
    for state in ("delivered", "poisoned", "pending"):
        run = make_run()
        lane = make_lane(run, destination=f"webhook:{endpoint.pk}")
        rows.append(make_message(run, state=state, lane=lane, endpoint=endpoint))
    address = reverse("console:webhook", args=["acme", endpoint.pk])
    first = admin.get(address).content.decode()
    assert [f'id="message-{row.pk}"' in first for row in rows] == [False, True, True]
    older = admin.get(f"{address}?before={rows[1].pk}").content.decode()
    assert [f'id="message-{row.pk}"' in older for row in rows] == [True, False, False]


def test_endpoint_of_another_tenant_does_not_exist(admin):
    other = make_endpoint(tenant=make_tenant("other"))
    assert admin.get(reverse("console:webhook", args=["acme", other.pk])).status_code == 404
    assert admin.get(reverse("console:webhook", args=["other", other.pk])).status_code == 404

"""Pausing many runs at once: whose right it is, what everybody then reads, and lifting it once."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from runs.models import AuditEntry, PauseSwitch
from tests.factories import make_run

ADDRESS = "/pauses/"


@pytest.fixture
def everywhere():
    browser = Client()
    browser.force_login(get_user_model().objects.create_superuser("root"))
    return browser


def test_admin_pauses_a_workflow_of_their_tenant_and_its_runs_say_so(signed_in):
    run = make_run()
    admin = signed_in("admin")
    admin.post(ADDRESS, {"scope": "tenant:acme", "workflow": "made", "reason": "ledger is down"})
    switch = PauseSwitch.objects.get()
    assert (switch.scope, switch.tenant, switch.workflow, switch.actor) == ("workflow", run.tenant, "made", "admin")
    assert AuditEntry.objects.get().reason == "ledger is down"
    assert "ledger is down" in signed_in("viewer").get(reverse("console:run", args=[run.pk])).content.decode()


def test_admin_of_one_tenant_cannot_pause_everything_nor_another_tenant(signed_in):
    make_run()
    admin = signed_in("admin")
    assert admin.post(ADDRESS, {"scope": "all", "reason": "because"}).status_code == 403
    signed_in("stranger")
    assert admin.post(ADDRESS, {"scope": "tenant:other", "reason": "because"}).status_code == 404
    assert not PauseSwitch.objects.exists()


def test_pausing_wants_a_reason(signed_in):
    answer = signed_in("admin").post(ADDRESS, {"scope": "tenant:acme", "reason": " "})
    assert (answer.status_code, PauseSwitch.objects.count()) == (422, 0)


def test_everything_is_paused_and_goes_on(everywhere, signed_in):
    everywhere.post(ADDRESS, {"scope": "all", "reason": "storm"})
    switch = PauseSwitch.objects.get(scope="all")
    assert "storm" in signed_in("viewer").get(ADDRESS).content.decode()
    assert signed_in("admin").post(reverse("console:pause_lift", args=[switch.pk])).status_code == 403
    assert everywhere.post(reverse("console:pause_lift", args=[switch.pk])).status_code == 302
    again = everywhere.post(reverse("console:pause_lift", args=[switch.pk]))
    assert (again.status_code, "lifted already" in again.content.decode()) == (409, True)


def test_switch_of_another_tenant_is_neither_shown_nor_lifted(signed_in):
    run = make_run()
    switch = PauseSwitch.objects.create(scope="tenant", tenant=run.tenant, actor="ann", reason="secret reason")
    stranger = signed_in("stranger")
    assert "secret reason" not in stranger.get(ADDRESS).content.decode()
    assert stranger.post(reverse("console:pause_lift", args=[switch.pk])).status_code == 409
    assert PauseSwitch.objects.count() == 1

"""Moving the end of what a run waits for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from runs.models import AuditEntry
from tests.factories import make_run, make_wait, now

WANTED = f"{now().year + 2}-01-01T12:00"


@pytest.fixture
def wait():
    run = make_run(state="waiting")
    return make_wait(run, kind="approval", name="delivery", expires_at=now() + timedelta(hours=2))


def extend(browser, wait, **given):
    address = reverse("console:extend_wait", args=[wait.run_id, wait.pk])
    return browser.post(address, {"reason": "the reviewer is ill", "expires_at": WANTED} | given)


def test_end_is_moved_in_the_persons_zone_and_audited(signed_in, wait):
    operator = signed_in("operator")
    operator.cookies["zone"] = "Europe/Berlin"
    answer = extend(operator, wait)
    wait.refresh_from_db()
    assert wait.expires_at.isoformat() == f"{now().year + 2}-01-01T11:00:00+00:00"
    entry = AuditEntry.objects.get(verb="extend_wait")
    assert (entry.actor, entry.reason) == ("operator", "the reviewer is ill")
    assert "the clock of delivery was moved." in operator.get(answer["Location"]).content.decode()


@pytest.mark.parametrize("given", [{"reason": ""}, {"expires_at": ""}, {"expires_at": "soon"}])
def test_form_comes_back_with_what_is_missing(signed_in, wait, given):
    before = wait.expires_at
    answer = extend(signed_in("operator"), wait, **given)
    wait.refresh_from_db()
    assert (answer.status_code, wait.expires_at) == (422, before)


def test_end_in_the_past_is_refused_with_the_run_as_it_is(signed_in, wait):
    answer = extend(signed_in("operator"), wait, expires_at="2001-01-01T00:00")
    assert (answer.status_code, "has passed already" in answer.content.decode()) == (422, True)


def test_wait_that_was_answered_is_refused(signed_in, wait):
    type(wait).objects.filter(pk=wait.pk).update(state="answered")
    assert extend(signed_in("operator"), wait).status_code == 409


def test_button_stands_where_there_is_a_clock_and_the_right(signed_in, wait):
    address = reverse("console:run", args=[wait.run_id])
    button = "Extend “delivery”…"
    assert button in signed_in("operator").get(address).content.decode()
    assert button not in signed_in("reviewer").get(address).content.decode()
    type(wait).objects.filter(pk=wait.pk).update(expires_at=None)
    assert button not in signed_in("operator").get(address).content.decode()

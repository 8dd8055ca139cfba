"""Signing in, being sent there, and what stays behind."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from durableops.console import throttle
from tests.factories import make_run

SIGN_IN = "/sign-in/"


@pytest.fixture
def somebody():
    return User.objects.create_user("some", password="a long enough one")


def give(client, password, **more):
    return client.post(SIGN_IN, {"username": "some", "password": password, **more})


def test_right_password_leads_to_where_one_wanted_to_go(client, somebody):
    asked = client.get("/runs/?view=failed")
    assert asked["Location"] == "/sign-in/?next=/runs/%3Fview%3Dfailed"
    assert give(client, "a long enough one", next="/runs/?view=failed")["Location"] == "/runs/?view=failed"


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_sign_in_leads_nowhere_else(client, somebody, elsewhere):
    assert give(client, "a long enough one", next=elsewhere)["Location"] == "/"


def test_guessing_a_password_has_to_wait(client, somebody):
    for _ in range(throttle.FREE_TRIES):
        assert give(client, "wrong").status_code == 200
    refused = give(client, "a long enough one")
    assert refused.status_code == 429
    assert "Try again in" in refused.content.decode()
    throttle.forget("some")
    assert give(client, "a long enough one").status_code == 302


def test_fragment_of_a_lost_session_sends_the_whole_page_to_sign_in():
    run = make_run()
    answer = Client().get(
        reverse("console:run_live", args=[run.pk]),
        headers={"HX-Request": "true", "HX-Current-URL": f"http://testserver/runs/{run.pk}/?tab=events"},
    )
    assert answer["HX-Redirect"] == f"/sign-in/?lost=1&next=/runs/{run.pk}/%3Ftab%3Devents"
    assert b"password" not in answer.content


def test_signing_out_tells_the_browser_to_forget(signed_in):
    answer = signed_in("viewer").post("/sign-out/")
    assert answer["Clear-Site-Data"] == '"cache", "storage"'
    assert answer["Location"] == SIGN_IN


def test_time_zone_and_colours_are_the_persons_own(signed_in):
    viewer = signed_in("viewer")
    viewer.post("/look/", {"zone": "Europe/Berlin", "back": "/runs/"})
    viewer.post("/look/", {"theme": "dark", "back": "/runs/"})
    page = viewer.get("/runs/").content.decode()
    assert 'data-theme="dark"' in page
    assert "Europe/Berlin" in page


@pytest.mark.parametrize("zone", ["No/Where", "../../etc/passwd", "", "\x00", "x" * 64])
def test_unknown_zone_is_utc(signed_in, zone):
    viewer = signed_in("viewer")
    viewer.post("/look/", {"zone": zone, "back": "/runs/"})
    answer = viewer.get("/runs/")
    assert (answer.status_code, ">UTC<" in answer.content.decode() or "UTC" in answer.content.decode()) == (200, True)


def test_look_leads_nowhere_else(signed_in):
    assert signed_in("viewer").post("/look/", {"theme": "dark", "back": "https://evil.example/"})["Location"] == "/"

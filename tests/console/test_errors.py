"""Pages for what cannot be answered: the console's own, plain, and silent about what is inside."""

from __future__ import annotations

import pytest
from django.test import Client


def test_unknown_address_gets_the_consoles_own_page(client):
    answer = client.get("/there/is/nothing/here/")
    assert (answer.status_code, "Nothing is here" in answer.content.decode()) == (404, True)


def test_wrong_host_gets_the_consoles_own_page(client, settings):
    settings.ALLOWED_HOSTS = ["ops.example.org"]
    answer = client.get("/runs/", headers={"Host": "evil.example"})
    text = answer.content.decode()
    assert (answer.status_code, "names a host this installation does not answer for" in text) == (400, True)
    assert "evil.example" not in text


def test_form_without_its_token_gets_the_consoles_own_page():
    answer = Client(enforce_csrf_checks=True).post("/sign-in/", {"username": "x", "password": "y"})
    assert (answer.status_code, "That was not accepted" in answer.content.decode()) == (403, True)


def test_failure_of_ours_gets_the_consoles_own_page_without_the_reason(signed_in, monkeypatch):
    def fail(*_):
        raise RuntimeError("the secret reason")

    monkeypatch.setattr("durableops.console.figures.recovery", fail)
    viewer = signed_in("viewer")
    viewer.raise_request_exception = False
    answer = viewer.get("/overview/")
    text = answer.content.decode()
    assert (answer.status_code, "Something broke here" in text, "secret reason" in text) == (500, True, False)


@pytest.mark.parametrize("address", ["/there/is/nothing/", "/sign-in/"])
def test_such_pages_carry_the_strict_policy_too(client, address):
    assert "default-src 'self'" in client.get(address)["Content-Security-Policy"]

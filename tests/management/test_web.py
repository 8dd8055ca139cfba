"""`manage.py web` and `manage.py sample_users`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from runs.models import Membership
from tests.settings import CHECKOUT


@pytest.mark.django_db(transaction=True)
def test_web_says_its_address_on_request_serves_and_stops(process_environment):
    command = [sys.executable, "manage.py", "web", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=CHECKOUT, env=process_environment, stdout=subprocess.PIPE, text=True) as web:
        assert web.stdout is not None
        try:
            url = json.loads(web.stdout.readline())["url"]
            with urlopen(f"{url}sign-in/", timeout=20) as answer:
                assert answer.status == 200
            with urlopen(f"{url}static/css/tokens.css", timeout=20) as answer:
                assert answer.headers["Content-Type"].startswith("text/css")
        finally:
            web.send_signal(signal.SIGTERM)
        assert web.wait(20) == 0


def test_taken_port_is_told_in_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CommandError, match="cannot be listened on"):
            call_command("web", "--port", str(taken.getsockname()[1]))


def test_address_that_is_none_is_told_in_one_sentence():
    with pytest.raises(CommandError, match="is not HOST:PORT"):
        call_command("web", "--bind", "nowhere")


@pytest.mark.django_db
def test_sample_users_have_one_role_each_and_new_passwords(capsys):
    call_command("sample_users", "--tenant", "acme", "--json")
    first = json.loads(capsys.readouterr().out)["users"]
    assert {one["role"] for one in first} == {"viewer", "operator", "reviewer", "admin"}
    call_command("sample_users", "--tenant", "acme", "--json")
    again = json.loads(capsys.readouterr().out)["users"]
    assert Membership.objects.filter(tenant__slug="acme").count() == 4
    assert authenticate(username=again[0]["username"], password=again[0]["password"]) is not None
    assert authenticate(username=first[0]["username"], password=first[0]["password"]) is None


@pytest.mark.django_db
def test_sample_users_are_refused_in_production(settings):
    settings.PRODUCTION = True
    with pytest.raises(CommandError, match="for development"):
        call_command("sample_users")

"""Production starts only with settings that are fit for it. Asked of real processes: settings are read once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
FIT = {
    "DURABLEOPS_ENV": "production",
    "SECRET_KEY": "k3y-" + "x7" * 30,
    "ALLOWED_HOSTS": "ops.example.org",
    "DATABASE_URL": "postgresql://app@db.example.org/durableops",
    "DATABASE_OWNER_URL": "postgresql://owner@db.example.org/durableops",
    "REDIS_URL": "redis://broker.example.org/0",
}
SERVE = (
    "import django; django.setup(); from django.test import Client; "
    "print(Client(headers={'host': 'ops.example.org'}).get('/static/css/tokens.css').status_code)"
)
SHOW = "from django.conf import settings as s; print(s.DEBUG, s.ALLOWED_HOSTS, s.DATABASES['default']['USER'])"


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = {*FIT, "DEBUG", "CSRF_TRUSTED_ORIGINS"}
    rest = {name: text for name, text in os.environ.items() if name not in ours and not name.startswith("DURABLEOPS_")}
    clean = {**rest, "DJANGO_SETTINGS_MODULE": "durableops.settings", **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=CHECKOUT, env=clean, capture_output=True, text=True, check=False, timeout=60
    )


def test_production_starts_with_settings_that_are_fit():
    shown = start("-c", SHOW, **FIT)
    assert shown.stdout.strip() == "False ['ops.example.org'] app", shown.stderr


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY"),
        ({"SECRET_KEY": "for-development-only-and-refused-in-production"}, "SECRET_KEY"),
        ({"DEBUG": "1"}, "DEBUG is on"),
        ({"DURABLEOPS_DEMO": "1"}, "DURABLEOPS_DEMO is on"),
        ({"ALLOWED_HOSTS": "*"}, "ALLOWED_HOSTS"),
        ({"ALLOWED_HOSTS": "ops.example.org,*"}, "ALLOWED_HOSTS"),
        ({"ALLOWED_HOSTS": ""}, "ALLOWED_HOSTS"),
        ({"DATABASE_URL": ""}, "DATABASE_URL is not set"),
        ({"REDIS_URL": ""}, "REDIS_URL is not set"),
        ({"DURABLEOPS_ENV": "staging"}, "'staging'"),
        ({"DATABASE_URL": "mysql://app:s3cret@db/x"}, "DATABASE_URL does not begin with postgresql://"),
        ({"DATABASE_OWNER_URL": "nonsense"}, "DATABASE_OWNER_URL does not begin with postgresql://"),
        ({"REDIS_URL": "127.0.0.1:6379"}, "REDIS_URL does not begin with redis://"),
        ({"DURABLEOPS_LEASE_SECONDS": "soon"}, "DURABLEOPS_LEASE_SECONDS"),
    ],
)
def test_production_refuses_to_start(change: dict[str, str], complaint: str):
    refused = start("manage.py", "check", **{**FIT, **change})
    assert refused.returncode != 0
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "s3cret" not in refused.stderr


def test_production_serves_the_looks_of_its_pages_without_more_ado():
    shown = start("-W", "error::UserWarning", "-c", SERVE, **FIT)
    assert shown.stdout.strip() == "200", shown.stderr


def test_refusal_does_not_repeat_the_secret():
    refused = start("manage.py", "check", **{**FIT, "SECRET_KEY": "a-short-secret"})
    assert "a-short-secret" not in refused.stderr


def test_development_answers_only_for_this_machine_and_without_debug():
    shown = start("-c", SHOW, DURABLEOPS_ENV="development", DATABASE_URL="postgresql://one@/x", REDIS_URL="unix:///r")
    assert shown.stdout.strip() == "False ['localhost', '127.0.0.1', '[::1]'] one", shown.stderr


def test_only_schema_commands_get_the_owner():
    as_owner = start("-c", SHOW, DURABLEOPS_DATABASE_ROLE="owner", **FIT)
    assert as_owner.stdout.split()[-1] == "owner", as_owner.stderr


def test_socket_folder_with_spaces_becomes_the_host():
    show = "from django.conf import settings as s; print(s.DATABASES['default']['HOST'])"
    shown = start("-c", show, **{**FIT, "DATABASE_URL": "postgresql://app@/d?host=/var/run/a%20b"})
    assert shown.stdout.strip() == "/var/run/a b", shown.stderr

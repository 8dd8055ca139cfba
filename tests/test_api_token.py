from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from durableops import tokens
from runs.models import ApiToken
from tests import factories


@pytest.fixture(autouse=True)
def acme(db):
    return factories.make_tenant("acme")


def run(capsys, *arguments: str) -> dict:
    call_command("api_token", *arguments, "--tenant", "acme", "--json")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def test_created_token_works_and_is_listed_without_its_secret(capsys):
    made = run(capsys, "create", "billing", "--scope", "runs:read", "--scope", "events:send", "--days", "2")
    assert tokens.recognise(made["token"]).scopes == ["runs:read", "events:send"]
    listed = run(capsys, "list")
    assert [each["name"] for each in listed["tokens"]] == ["billing"]
    assert made["token"] not in json.dumps(listed)


def test_revoked_token_stays_listed_as_such(capsys):
    made = run(capsys, "create", "billing", "--scope", "runs:read")
    assert run(capsys, "revoke", made["prefix"], "--reason", "lost")["revoked_at"]
    assert ApiToken.objects.get().revoked_by == "command line"


def test_words_for_people_show_the_token_once():
    out = StringIO()
    call_command("api_token", "create", "billing", "--scope", "runs:read", "--tenant", "acme", stdout=out)
    assert "dop_" in out.getvalue()
    assert "not shown again" in out.getvalue()
    out = StringIO()
    call_command("api_token", "list", "--tenant", "acme", stdout=out)
    assert "dop_" not in out.getvalue()
    assert "billing" in out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "a", "--scope", "runs:read", "--tenant", "acmee"],
        ["create", "a\nb", "--scope", "runs:read", "--tenant", "acme"],
        ["create", "a", "--scope", "runs:read", "--days", "0", "--tenant", "acme"],
        ["create", "a", "--scope", "runs:read", "--days", "nan", "--tenant", "acme"],
        ["create", "a", "--scope", "runs:read", "--days", "1e300", "--tenant", "acme"],
        ["revoke", "000000000000", "--tenant", "acme"],
        ["create", "a", "--scope", "everything", "--tenant", "acme"],
    ],
)
def test_mistake_is_one_sentence_and_makes_nothing(arguments):
    with pytest.raises(CommandError):
        call_command("api_token", *arguments)
    assert not ApiToken.objects.exists()

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from durableops import tokens
from durableops.errors import InputRefused, TokenNotFound, TokenRefused
from runs.models import ApiToken, AuditEntry
from tests import factories

DAY = timedelta(days=1)


@pytest.fixture
def acme(db):
    return factories.make_tenant("acme")


def issue(tenant, name="billing", scopes=("runs:read",), lifetime=DAY):
    return tokens.issue(name, tenant=tenant, scopes=scopes, lifetime=lifetime, actor="ada", reason="for billing")


def test_secret_is_stored_nowhere(acme):
    issued = issue(acme)
    row = ApiToken.objects.filter(pk=issued.token.pk).values().get()
    audit = AuditEntry.objects.values().get()
    tail = issued.secret.rpartition("_")[2]
    assert tail not in str(row) + str(audit) + repr(issued.token)
    assert len(issued.secret) >= 60


def test_token_is_recognised_with_its_tenant_in_one_statement(acme, django_assert_num_queries):
    issued = issue(acme)
    ApiToken.objects.update(last_used_at=timezone.now())
    with django_assert_num_queries(1):
        found = tokens.recognise(issued.secret)
        assert found.tenant == acme


CHANGES = {
    "cut": lambda secret: secret[:-1],
    "longer": lambda secret: secret + "a",
    "capitals": lambda secret: secret.upper(),
    "other last letter": lambda secret: secret[:-1] + ("a" if secret[-1] != "a" else "b"),
    "space": lambda secret: " " + secret,
    "line end": lambda secret: secret + "\n",
    "nothing": lambda secret: "",
    "other prefix": lambda secret: "dop_" + "0" * 12 + secret[16:],
    "other kind": lambda secret: secret.replace("dop_", "xyz_"),
    "surrogate": lambda secret: "\ud800",
    "NUL": lambda secret: "\0",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_anything_else_is_refused_in_the_same_words(acme, change):
    issued = issue(acme)
    with pytest.raises(TokenRefused) as refused:
        tokens.recognise(change(issued.secret))
    assert "not known here" in str(refused.value)


def test_revoked_token_is_refused_at_once_and_the_audit_says_who(acme):
    issued = issue(acme)
    tokens.revoke(issued.token.prefix, tenant=acme, actor="ada", reason="leaked")
    with pytest.raises(TokenRefused, match="was revoked"):
        tokens.recognise(issued.secret)
    assert list(AuditEntry.objects.order_by("id").values_list("verb", "actor", "reason")) == [
        ("issue_token", "ada", "for billing"),
        ("revoke_token", "ada", "leaked"),
    ]


def test_revoking_twice_changes_nothing(acme):
    issued = issue(acme)
    first = tokens.revoke(issued.token.prefix, tenant=acme, actor="ada", reason="leaked")
    second = tokens.revoke(issued.token.prefix, tenant=acme, actor="bob", reason="again")
    assert (second.revoked_at, second.revoked_by) == (first.revoked_at, "ada")
    assert AuditEntry.objects.filter(verb="revoke_token").count() == 1


def test_token_of_another_tenant_cannot_be_revoked(acme):
    issued = issue(acme)
    with pytest.raises(TokenNotFound):
        tokens.revoke(issued.token.prefix, tenant=factories.make_tenant("other"), actor="eve", reason="")
    assert tokens.recognise(issued.secret)


def test_token_past_its_end_is_refused(acme):
    issued = issue(acme)
    ApiToken.objects.update(expires_at=timezone.now())
    with pytest.raises(TokenRefused, match="expired at"):
        tokens.recognise(issued.secret)


def test_use_is_noted_once_in_some_minutes(acme):
    issued = issue(acme)
    tokens.recognise(issued.secret)
    first = ApiToken.objects.get().last_used_at
    tokens.recognise(issued.secret)
    assert first is not None
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=timezone.now() - tokens.USE_NOTED_EVERY)
    tokens.recognise(issued.secret)
    again = ApiToken.objects.get().last_used_at
    assert again is not None
    assert again > first


def test_refused_token_is_not_noted_as_used(acme):
    issued = issue(acme)
    tokens.revoke(issued.token.prefix, tenant=acme, actor="ada", reason="")
    with pytest.raises(TokenRefused):
        tokens.recognise(issued.secret)
    assert ApiToken.objects.get().last_used_at is None


@pytest.mark.parametrize("scopes", [[], ["runs:write"], ["tenant:administer"], ["anybody"], ["RUNS:READ"]])
def test_scope_that_tokens_do_not_have_is_refused(acme, scopes):
    with pytest.raises(InputRefused):
        issue(acme, scopes=scopes)


@pytest.mark.parametrize("lifetime", [timedelta(0), -DAY, timedelta(days=367)])
def test_lifetime_that_ends_never_or_before_it_began_is_refused(acme, lifetime):
    with pytest.raises(InputRefused):
        issue(acme, lifetime=lifetime)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\0b", "x" * 101])
def test_name_that_cannot_be_shown_is_refused(acme, name):
    with pytest.raises(InputRefused):
        issue(acme, name=name)


def test_name_is_taken_until_its_token_is_revoked(acme):
    issued = issue(acme)
    with pytest.raises(InputRefused, match="already"):
        issue(acme)
    tokens.revoke(issued.token.prefix, tenant=acme, actor="ada", reason="")
    assert issue(acme).token.pk != issued.token.pk


def test_table_itself_refuses_a_secret_that_is_not_hashed(acme):
    issued = issue(acme)
    with pytest.raises(IntegrityError, match="api_token_secret_is_hashed"), transaction.atomic():
        ApiToken.objects.filter(pk=issued.token.pk).update(secret_hash=issued.secret[:64])

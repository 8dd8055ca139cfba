"""Members and tokens: an admin's business, audited, a secret shown once, and never a tenant without an admin."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import authenticate

from durableops.tokens import recognise
from runs.models import ApiToken, AuditEntry, Membership
from tests.factories import make_tenant

ADDRESS = "/people/acme/"


@pytest.fixture
def admin(signed_in):
    return signed_in("admin")


def shown_once(answer):
    found = re.search(r'shown once: <b class="mono">([^<]+)', answer.content.decode())
    assert found is not None
    return found[1]


def test_new_name_gets_an_account_whose_password_is_shown_once(admin):
    given = {"act": "put", "username": "ann", "role": "operator", "sees_payloads": "on"}
    password = shown_once(admin.post(ADDRESS, given))
    assert authenticate(username="ann", password=password) is not None
    assert password not in admin.get(ADDRESS).content.decode()
    member = Membership.objects.get(user__username="ann")
    assert (member.role, member.sees_payloads) == ("operator", True)
    entry = AuditEntry.objects.get(verb="put_member")
    assert (entry.actor, entry.target_id, entry.after) == (
        "admin",
        "ann",
        {"role": "operator", "sees_payloads": True, "reads_prompts": False},
    )


def test_changing_a_role_keeps_the_password(admin, signed_in):
    signed_in("viewer")
    answer = admin.post(ADDRESS, {"act": "put", "username": "viewer", "role": "reviewer"})
    assert (answer.status_code, Membership.objects.get(user__username="viewer").role) == (302, "reviewer")


@pytest.mark.parametrize("given", [{"act": "remove"}, {"act": "put", "role": "viewer"}])
def test_last_admin_cannot_go(admin, given):
    answer = admin.post(ADDRESS, given | {"username": "admin"})
    assert (answer.status_code, "last admin" in answer.content.decode()) == (422, True)
    assert Membership.objects.get(user__username="admin").role == "admin"


def test_removed_member_sees_nothing_any_more(admin, signed_in):
    viewer = signed_in("viewer")
    admin.post(ADDRESS, {"act": "remove", "username": "viewer"})
    assert "You belong to no tenant yet" in viewer.get("/runs/").content.decode()


def test_token_is_shown_once_works_and_is_revoked(admin):
    answer = admin.post(ADDRESS, {"act": "issue", "name": "crm", "days": "30", "scope": ["runs:read", "runs:start"]})
    secret = shown_once(answer)
    token = recognise(secret)
    assert (token.tenant.slug, token.scopes) == ("acme", ["runs:read", "runs:start"])
    assert secret not in admin.get(ADDRESS).content.decode()
    admin.post(ADDRESS, {"act": "revoke", "prefix": token.prefix})
    token.refresh_from_db()
    assert token.revoked_by == "admin"


@pytest.mark.parametrize(
    "given",
    [{"days": "x"}, {"days": "0"}, {"days": "9999"}, {"name": ""}, {"scope": ["tenant:administer"]}, {"scope": []}],
)
def test_token_that_cannot_be_is_refused(admin, given):
    answer = admin.post(ADDRESS, {"act": "issue", "name": "crm", "days": "30", "scope": ["runs:read"]} | given)
    assert (answer.status_code, ApiToken.objects.count()) == (422, 0)


def test_token_of_another_tenant_is_not_there(admin, signed_in):
    signed_in("stranger").post("/people/other/", {"act": "issue", "name": "x", "days": "1", "scope": ["runs:read"]})
    theirs = ApiToken.objects.get()
    assert admin.post(ADDRESS, {"act": "revoke", "prefix": theirs.prefix}).status_code == 404
    assert admin.get("/people/other/").status_code == 404
    theirs.refresh_from_db()
    assert (theirs.revoked_at, theirs.tenant) == (None, make_tenant("other"))

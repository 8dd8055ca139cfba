"""Who belongs to a tenant: added, changed, removed, each with its audit entry. What a role may do is `access`."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import User
from django.db import transaction

from durableops.checkpoints.codec import check_key
from durableops.errors import InputRefused
from runs.models import AuditEntry, Membership, Tenant
from runs.models.access import Role


@transaction.atomic
def put(
    username: str, *, tenant: Tenant, role: str, sees_payloads: bool, actor: str, reads_prompts: bool = False,
    reason: str = "",
) -> str:  # fmt: skip
    """Make somebody a member, or change their role. Returns the password of an account made for it, else nothing.

    Raises InputRefused for a name or role that cannot be, and when the tenant would be left without an admin.
    """
    check_key(username, what="name", max_bytes=150)
    if role not in Role.values:
        raise InputRefused(f"{role!r} is not a role; there are: {', '.join(Role.values)}.")
    password = ""
    user = User.objects.filter(username=username).first()
    if user is None:
        password = secrets.token_urlsafe(12)
        user = User.objects.create_user(username, password=password)
    before = _role_of(user, tenant)
    if role != Role.ADMIN:
        _keep_an_admin(tenant, without=username)
    rights = {"role": role, "sees_payloads": sees_payloads, "reads_prompts": reads_prompts}
    Membership.objects.update_or_create(user=user, tenant=tenant, defaults=rights)
    _audit(tenant, "put_member", username, actor=actor, reason=reason, before=before, after=rights)
    return password


@transaction.atomic
def remove(username: str, *, tenant: Tenant, actor: str, reason: str = "") -> None:
    """End a membership; the account stays. Raises InputRefused when the tenant would be left without an admin."""
    _keep_an_admin(tenant, without=username)
    found = Membership.objects.filter(tenant=tenant, user__username=username).select_related("user").first()
    if found is None:
        raise InputRefused(f"{username!r} is no member of {tenant}.")
    before = _role_of(found.user, tenant)
    found.delete()
    _audit(tenant, "remove_member", username, actor=actor, reason=reason, before=before, after={})


def _keep_an_admin(tenant: Tenant, *, without: str) -> None:
    # Locked, so that two admins who remove each other cannot both succeed.
    admins = Membership.objects.select_for_update(of=("self",)).filter(tenant=tenant, role=Role.ADMIN)
    names = set(admins.values_list("user__username", flat=True))
    if names == {without}:
        raise InputRefused(f"{without!r} is the last admin of {tenant}: make somebody else an admin first.")


def _role_of(user: User, tenant: Tenant) -> dict[str, object]:
    found = Membership.objects.filter(user=user, tenant=tenant).values("role", "sees_payloads", "reads_prompts").first()
    return dict(found) if found else {}


def _audit(
    tenant: Tenant, verb: str, username: str, *, actor: str, reason: str, before: dict[str, object],
    after: dict[str, object],
) -> None:  # fmt: skip
    AuditEntry.objects.create(tenant=tenant, actor=actor, verb=verb, target_kind="member", target_id=username[:100],
                              reason=reason[:2000], before=before, after=after)  # fmt: skip

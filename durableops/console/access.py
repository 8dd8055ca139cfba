"""Whose rights a request of a person has: the one module that every view and verb asks. The table of roles and verbs is
`durableops.access`, shared with the API; what a run's state allows is asked elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.http import Http404, HttpRequest
from django.utils.functional import cached_property

from durableops.access import GRANTS, READS, VERBS, Permission, deciding_roles
from runs.models import Membership, Run, Tenant
from runs.querysets import RunQuerySet

WHO: dict[Permission, str] = {
    Permission.START: "an operator or an admin",
    Permission.SEND: "an operator or an admin",
    Permission.OPERATE: "an operator or an admin",
    Permission.DECIDE: "a reviewer or an admin",
    Permission.SETTLE: "an operator, a reviewer or an admin",
    Permission.REVIEW: "a reviewer or an admin",
    Permission.RETAIN: "an admin",
    Permission.QUOTAS: "an admin",
    Permission.ADMINISTER: "an admin",
    Permission.VIEW: "a member",
    Permission.PAYLOADS: "somebody who sees payloads",
    Permission.PROMPTS: "somebody who was given the right to read prompts",
}


class NotAllowed(Exception):
    """A member of the tenant whose role does not include this. People of other tenants get a 404 instead."""

    def __init__(self, permission: Permission, tenant: str) -> None:
        self.permission = permission
        super().__init__(f"This needs {WHO[permission]} of {tenant}. Nothing was changed.")


@dataclass(frozen=True, kw_only=True)
class Access:
    """One person's rights, read once for a request."""

    user: AbstractUser
    everything: bool
    """A superuser: every tenant, every verb, every payload."""
    memberships: dict[int, Membership] = field(default_factory=dict)

    @property
    def actor(self) -> str:
        """How this person is named in events and in the audit."""
        return self.user.get_username()

    @cached_property
    def tenants(self) -> list[Tenant]:
        """The tenants this person may see, by name."""
        if self.everything:
            return list(Tenant.objects.order_by("slug"))
        return sorted((m.tenant for m in self.memberships.values()), key=lambda tenant: tenant.slug)

    @cached_property
    def tenant_ids(self) -> list[int]:
        return sorted(tenant.pk for tenant in self.tenants)

    def may(self, permission: Permission, tenant_id: int) -> bool:
        """Whether this person may do such a thing in this tenant."""
        if self.everything:
            return True
        membership = self.memberships.get(tenant_id)
        return membership is not None and permission in GRANTS[membership.role]

    def may_verb(self, verb: str, tenant_id: int) -> bool:
        return self.may(VERBS[verb], tenant_id)

    def deciding_roles(self, tenant_id: int) -> frozenset[str]:
        """As which of the roles that an approval may ask for this person counts in this tenant."""
        if self.everything:
            return deciding_roles(frozenset(Permission))
        membership = self.memberships.get(tenant_id)
        return deciding_roles(GRANTS[membership.role]) if membership is not None else frozenset()

    def sees_payloads(self, tenant_id: int) -> bool:
        """Payload sight is a right of its own, whatever the role."""
        membership = self.memberships.get(tenant_id)
        return self.everything or (membership is not None and membership.sees_payloads)

    def reads_prompts(self, tenant_id: int) -> bool:
        """Only who was given it in this tenant, by name: not even a superuser has it otherwise."""
        membership = self.memberships.get(tenant_id)
        return membership is not None and membership.reads_prompts

    def may_read(self, readable_by: str, tenant_id: int) -> bool:
        """Whether this person may read what is for such eyes."""
        match READS[readable_by]:
            case Permission.PROMPTS:
                return self.reads_prompts(tenant_id)
            case Permission.PAYLOADS:
                return self.sees_payloads(tenant_id)
            case permission:
                return self.may(permission, tenant_id)

    def require_reading(self, readable_by: str, tenant: Tenant) -> None:
        """Raise NotAllowed unless this person may read what is for such eyes."""
        if not self.may_read(readable_by, tenant.pk):
            raise NotAllowed(READS[readable_by], tenant.slug)

    @property
    def administered(self) -> Tenant | None:
        """A tenant whose members this person may manage, if there is one."""
        return next((t for t in self.tenants if self.may(Permission.ADMINISTER, t.pk)), None)

    def tenant_to_administer(self, slug: str) -> Tenant:
        """A tenant whose admin this person is. Raises Http404, NotAllowed."""
        tenant = next((t for t in self.tenants if t.slug == slug), None)
        if tenant is None:
            raise Http404("There is no such tenant.")
        if not self.may(Permission.ADMINISTER, tenant.pk):
            raise NotAllowed(Permission.ADMINISTER, tenant.slug)
        return tenant

    def roles(self) -> str:
        """The roles in words, for the corner of the page."""
        if self.everything:
            return "superuser"
        return ", ".join(f"{m.role} of {m.tenant.slug}" for m in self.memberships.values()) or "no tenant yet"

    def runs(self) -> RunQuerySet:
        """Every run this person may see; the only way the console comes to a run."""
        return Run.objects.all() if self.everything else Run.objects.filter(tenant_id__in=sorted(self.memberships))

    def run(self, run_id: UUID) -> Run:
        """One run. Raises Http404 for one that does not exist and, alike, for one of another tenant."""
        run = self.runs().select_related("tenant", "plan", "worker").filter(pk=run_id).first()
        if run is None:
            raise Http404(f"There is no run {run_id} here.")
        return run

    def require_verb(self, verb: str, tenant: Tenant) -> None:
        """Raise NotAllowed unless the role in this tenant includes the verb."""
        if not self.may_verb(verb, tenant.pk):
            raise NotAllowed(VERBS[verb], tenant.slug)


def access_of(request: HttpRequest) -> Access:
    """The rights of whoever asks; the memberships are read once for a request."""
    known = getattr(request, "_console_access", None)
    if known is None:
        user = cast("AbstractUser", request.user)
        rows = user.memberships.select_related("tenant").order_by("tenant__slug")  # type: ignore[attr-defined]
        known = Access(user=user, everything=user.is_superuser, memberships={row.tenant_id: row for row in rows})
        request._console_access = known  # type: ignore[attr-defined]
    return cast("Access", known)

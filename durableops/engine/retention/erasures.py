"""Erasures: somebody asks that a tenant's data, or whatever carries a label, be removed. Upkeep then does it.

What must stay stays and is said with its reason: an effect that is in doubt, a key the other side still knows, a legal
hold, the audit. Of runs that were created after the request nothing is erased.
"""

from __future__ import annotations

from django.db import transaction

from durableops.checkpoints.codec import check_key
from durableops.engine.retention.words import reason_of
from durableops.errors import DurableOpsError
from runs.models import AuditEntry, Erasure, Relook, Tenant


class ErasureNotFound(DurableOpsError):
    """There is no such request for erasure in this tenant."""

    code = "erasure.not_found"
    http_status = 404


def request(*, tenant: Tenant, label: str = "", value: str = "", actor: str, reason: str) -> Erasure:
    """Ask for it: everything of the tenant, or what carries the label. Raises InputRefused."""
    reason = reason_of(reason)
    if label:
        check_key(label, what="label")
        check_key(value, what="value of the label")
    with transaction.atomic():
        erasure = Erasure.objects.create(
            tenant=tenant, label=label, value=value if label else "", requested_by=actor, reason=reason
        )
        Relook.objects.create(tenant=tenant, label=label, value=erasure.value)
        AuditEntry.objects.create(
            tenant=tenant,
            actor=actor,
            verb="request_erasure",
            target_kind="erasure",
            target_id=str(erasure.pk),
            reason=reason,
            after={"label": label, "value": erasure.value} if label else {"everything": True},
        )
    return erasure

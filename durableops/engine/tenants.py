"""Finding tenants for scripts. The console and the API take theirs from who is asking."""

from __future__ import annotations

from durableops.checkpoints.codec import check_key
from durableops.errors import InputRefused
from runs.models import Tenant


def get_or_make_tenant(slug: str) -> Tenant:
    """The tenant with this slug. Raises InputRefused for a slug that cannot be one."""
    check_key(slug, what="tenant")
    if not slug.replace("-", "").replace("_", "").isalnum() or len(slug) > 100:
        raise InputRefused(f"tenant {slug!r} is not a slug: give letters, digits, '-' and '_', at most 100.")
    return Tenant.objects.get_or_create(slug=slug, defaults={"name": slug})[0]

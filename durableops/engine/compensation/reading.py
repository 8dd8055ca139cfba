"""What is owed and being undone, for the API and the command line: pages in the order in which it was owed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from durableops.errors import CompensationNotFound
from runs.models import Compensation, Tenant
from runs.models.compensation import COMPENSATION_FINAL

MOST_OF_RUN = 500


def find(compensation_id: int, *, tenant: Tenant) -> Compensation:
    """One compensation. Raises CompensationNotFound, also for one of another tenant."""
    found = _rows().filter(pk=compensation_id, tenant=tenant).first()
    if found is None:
        raise CompensationNotFound(f"there is no compensation {compensation_id} here.")
    return found


def unsettled(*, tenant: Tenant, limit: int, after: tuple[datetime, int] | None = None) -> Sequence[Compensation]:
    """Those of a tenant that are not settled, also of runs that ended long ago: oldest first, after (owed_at, id)."""
    rows = _rows().filter(tenant=tenant).exclude(state__in=COMPENSATION_FINAL).order_by("owed_at", "id")
    if after is not None:
        # The first condition is the one the index can use; the second settles those of one instant.
        at, number = after
        rows = rows.filter(owed_at__gte=at).exclude(owed_at=at, id__lte=number)
    return list(rows[:limit])


def of_run(run_id: UUID, *, tenant: Tenant) -> Sequence[Compensation]:
    """All of what one run did that is to be undone, or was: newest effect first, as it is undone."""
    return list(_rows().filter(run_id=run_id, tenant=tenant).order_by("-effect_id")[:MOST_OF_RUN])


def _rows() -> QuerySet[Compensation]:
    return Compensation.objects.select_related("effect").defer("effect__result")

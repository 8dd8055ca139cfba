"""The tenant's own quota over the API, to read. It is changed by people: in the console, or with `operate`."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from durableops.access import Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import Quota
from durableops.engine import quota_view
from durableops.engine.quotas import Owner

router = Router(tags=["quota"])


@router.get(
    "", response={200: Quota, **REFUSALS}, operation_id="get_quota", summary="Read the tenant's quota",
    **asks(Permission.VIEW),
)  # fmt: skip
def shown(request: HttpRequest) -> Quota:
    """What this tenant may use, and what it uses just now. Null is no limit."""
    seen = quota_view.of(Owner(tenant=client_of(request).tenant))
    policy = seen.policy
    return Quota(
        running=seen.running, waiting=seen.waiting, oldest_at=seen.oldest_at, running_cap=seen.cap, alarm=seen.alarm,
        starts_per_minute=policy.starts_per_minute if policy else None,
        call_rates=policy.call_rates if policy else {}, weight=policy.weight if policy else 1,
        version=policy.version if policy else 0,
    )  # fmt: skip

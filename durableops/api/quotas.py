"""The tenant's own quota over the API: read, previewed, changed with a reason. Shared resources are for superusers."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.quota_schemas import (
    AddTenantBudgetRequest,
    PreviewQuotaRequest,
    Quota,
    QuotaChange,
    QuotaHistory,
    QuotaPreview,
    SetQuotaRequest,
    TenantBudget,
)
from durableops.engine import budgeting, quota_view, quotas
from durableops.engine.quotas import Owner
from durableops.engine.spent import shown as amount
from durableops.masking import mask_text
from runs.models import QuotaPolicy

router = Router(tags=["quota"])


@router.get(
    "", response={200: Quota, **REFUSALS}, operation_id="get_quota", summary="Read the tenant's quota",
    **asks(Permission.VIEW),
)  # fmt: skip
def shown(request: HttpRequest) -> Quota:
    """What this tenant may use, and what it uses just now. Null is no limit."""
    return _quota(_owner(request))


@router.get(
    "/history", response={200: QuotaHistory, **REFUSALS}, operation_id="get_quota_history",
    summary="Read who changed the quota", **asks(Permission.VIEW),
)  # fmt: skip
def history(request: HttpRequest) -> QuotaHistory:
    """The last changes, with who made them and why."""
    return QuotaHistory(
        changes=[
            QuotaChange(
                at=one.at, actor=one.actor, reason=mask_text(one.reason), before=one.before or {}, after=one.after or {}
            )
            for one in quota_view.history(_owner(request))
        ]
    )


@router.post(
    "/preview", response={200: QuotaPreview, **REFUSALS}, operation_id="preview_quota",
    summary="Ask whom a change would touch", **asks(VERBS["set_quota"]),
)  # fmt: skip
def preview(request: HttpRequest, body: PreviewQuotaRequest) -> QuotaPreview:
    """What a change would do to what runs and waits just now. Nothing is changed."""
    owner = _owner(request)
    changes = quotas.checked(owner, body.changes.named)
    return QuotaPreview(says=quota_view.preview(quota_view.of(owner), changes))


@router.post(
    "", response={200: Quota, **REFUSALS}, operation_id="set_quota", summary="Change the tenant's quota",
    **asks(VERBS["set_quota"]),
)  # fmt: skip
def set_quota(request: HttpRequest, body: SetQuotaRequest) -> Quota:
    """Change what is named, leave the rest. It holds for the next claim, rates and budgets within a second."""
    owner = _owner(request)
    actor = client_of(request).actor
    quotas.set_quota(owner, body.changes.named, actor=actor, reason=body.reason, made_from=body.version)
    return _quota(owner)


@router.post(
    "/budget", response={200: Quota, **REFUSALS}, operation_id="add_tenant_budget",
    summary="Give the tenant more budget", **asks(VERBS["add_tenant_budget"]),
)  # fmt: skip
def add_budget(request: HttpRequest, body: AddTenantBudgetRequest) -> Quota:
    """Raise what the tenant may spend in its present day or month. Runs that were asked about it go on."""
    client = client_of(request)
    budgeting.add_tenant_budget(
        client.tenant,
        actor=client.actor,
        reason=body.reason,
        period=body.period,
        amounts={str(unit): more for unit, more in body.budget.items()},
    )
    return _quota(_owner(request))


def _owner(request: HttpRequest) -> Owner:
    return Owner(tenant=client_of(request).tenant)


def _quota(owner: Owner) -> Quota:
    seen = quota_view.of(owner)
    policy = seen.policy or QuotaPolicy(version=0)
    return Quota(
        running=seen.running, waiting=seen.waiting, oldest_at=seen.oldest_at, alarm=seen.alarm,
        periods=[
            TenantBudget.model_validate(
                {
                    "period": one.period, "unit": one.unit, "currency": one.currency, "starts_at": one.starts_at,
                    "ends_at": one.ends_at, "limit": amount(one.most), "spent": amount(one.spent),
                    "reserved": amount(one.reserved), "over": amount(one.over),
                }
            )
            for one in seen.budgets
        ],
        version=policy.version, **{name: getattr(policy, name) for name in quotas.KNOWN},
    )  # fmt: skip

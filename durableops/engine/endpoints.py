"""Webhook endpoints: made, changed, disabled, removed, their secrets rotated. Each verb with its audit entry.

A secret is given back once, by the verb that made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from durableops import sealing
from durableops.checkpoints.codec import check_key
from durableops.effects import addresses, webhooks
from durableops.engine import messages, relay_bell
from durableops.engine.acting import kept_reason
from durableops.engine.waking import db_now
from durableops.errors import EndpointNotFound, InputRefused, NotSent
from durableops.masking import mask_addresses
from runs.models import AuditEntry, OutboxDestination, Tenant, WebhookEndpoint
from runs.posting import WEBHOOK

MOST_ENDPOINTS = 50
"""Of one tenant: each event is a message for each of them."""
MOST_EVENT_TYPES = 100
LONGEST_OVERLAP = timedelta(days=30)
DEFAULT_OVERLAP = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """An endpoint with a secret that was just made."""

    endpoint: WebhookEndpoint
    secret: str
    """As the receiver is to be given it. It is stored encrypted and never shown again."""


def create(
    url: str, *, tenant: Tenant, actor: str, reason: str = "", event_types: Iterable[str] = (), description: str = ""
) -> Issued:
    """Make an endpoint. Raises InputRefused for an address that may not be used, or event types that cannot be."""
    wanted = _event_types(event_types)
    _check_address(url)
    secret = webhooks.new_secret()
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)
        if living(tenant).count() >= MOST_ENDPOINTS:
            raise InputRefused(f"{tenant} has {MOST_ENDPOINTS} endpoints already; remove one first.")
        endpoint = WebhookEndpoint.objects.create(
            tenant=tenant, url=url, description=description.strip()[:200], event_types=wanted, created_by=actor,
            **_sealed(secret),
        )  # fmt: skip
        _audit(endpoint, "create_endpoint", actor=actor, reason=reason, after=_facts(endpoint))
    return Issued(endpoint=endpoint, secret=secret)


def change(
    endpoint_id: UUID, *, tenant: Tenant, actor: str, url: str, event_types: Iterable[str], description: str,
    reason: str = "",
) -> WebhookEndpoint:  # fmt: skip
    """Change where it is and what it wants to hear of. What waits for it goes to the new address."""
    wanted = _event_types(event_types)
    _check_address(url)
    with transaction.atomic():
        endpoint = _locked(tenant, endpoint_id)
        before = _facts(endpoint)
        endpoint.url, endpoint.event_types, endpoint.description = url, wanted, description.strip()[:200]
        endpoint.save(update_fields=["url", "event_types", "description"])
        _audit(endpoint, "change_endpoint", actor=actor, reason=reason, before=before, after=_facts(endpoint))
    return endpoint


def rotate(
    endpoint_id: UUID, *, tenant: Tenant, actor: str, reason: str = "", overlap: timedelta = DEFAULT_OVERLAP
) -> Issued:
    """Make a new secret; the present one signs as well for `overlap`, so that the receiver can change over."""
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise InputRefused(f"the old secret cannot sign for {overlap}: give at most {LONGEST_OVERLAP.days} days.")
    secret = webhooks.new_secret()
    with transaction.atomic(), connection.cursor() as cursor:
        endpoint = _locked(tenant, endpoint_id)
        until = db_now(cursor) + overlap if overlap else None
        former = sealing.seal(sealing.unseal(endpoint.secret.encode())).decode() if overlap else ""
        for field, value in {**_sealed(secret), "former_secret": former, "former_until": until}.items():
            setattr(endpoint, field, value)
        endpoint.save(update_fields=["secret", "sealed_with", "former_secret", "former_until"])
        after = {"former_until": None if until is None else until.isoformat()}
        _audit(endpoint, "rotate_endpoint_secret", actor=actor, reason=reason, after=after)
    return Issued(endpoint=endpoint, secret=secret)


def disable(endpoint_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> bool:
    """Send it nothing more, and make no messages for it. What waits goes on waiting. False if it was disabled."""
    reason = kept_reason(reason)
    with transaction.atomic():
        endpoint = _locked(tenant, endpoint_id)
        if not endpoint.enabled:
            return False
        endpoint.enabled, endpoint.disabled_why = False, (reason or f"by {actor}")[:200]
        endpoint.save(update_fields=["enabled", "disabled_why"])
        messages.stop_destination(destination_of(endpoint), tenant=tenant, actor=actor, reason=reason)
        _audit(endpoint, "disable_endpoint", actor=actor, reason=reason, after={"enabled": False})
    return True


def enable(endpoint_id: UUID, *, tenant: Tenant, actor: str, reason: str = "") -> bool:
    """Send it events again, beginning with what waits for it. False if it was enabled."""
    with transaction.atomic():
        endpoint = _locked(tenant, endpoint_id)
        if endpoint.enabled:
            return False
        endpoint.enabled, endpoint.disabled_why = True, ""
        endpoint.save(update_fields=["enabled", "disabled_why"])
        messages.let_destination_go_on(destination_of(endpoint), tenant=tenant, actor=actor, reason=reason)
        _audit(endpoint, "enable_endpoint", actor=actor, reason=reason, after={"enabled": True})
    return True


def remove(endpoint_id: UUID, *, tenant: Tenant, actor: str, reason: str) -> None:
    """Forget an endpoint. What waits for it is skipped by relays, each message with its history row."""
    with transaction.atomic(), connection.cursor() as cursor:
        endpoint = _locked(tenant, endpoint_id)
        endpoint.enabled, endpoint.disabled_why, endpoint.removed_at = (
            False,
            f"removed by {actor}"[:200],
            db_now(cursor),
        )
        endpoint.save(update_fields=["enabled", "disabled_why", "removed_at"])
        OutboxDestination.objects.filter(tenant=tenant, name=destination_of(endpoint)).delete()
        _audit(endpoint, "remove_endpoint", actor=actor, reason=reason, before=_facts(endpoint))
        transaction.on_commit(relay_bell.ring)


def living(tenant: Tenant) -> Any:
    """The endpoints of a tenant that were not removed, oldest first."""
    return WebhookEndpoint.objects.filter(tenant=tenant, removed_at=None).order_by("created_at", "id")


def destination_of(endpoint: WebhookEndpoint) -> str:
    return f"{WEBHOOK}{endpoint.pk}"


def tenant_of(endpoint_id: UUID) -> Tenant:
    return WebhookEndpoint.objects.select_related("tenant").get(pk=endpoint_id).tenant


def http_is_allowed() -> bool:
    """Whether webhooks may go unencrypted: on a developer's machine only."""
    return not settings.PRODUCTION


def _check_address(url: str) -> None:
    """Raises InputRefused for an address that cannot be used, or whose host may not be connected to as it is now."""
    target = addresses.read(url, allow_http=http_is_allowed())
    try:
        addresses.resolve(target.host, target.port)
    except NotSent as refused:
        raise InputRefused(f"the address is not accepted: {refused.detail}", path="/url") from None


def _event_types(given: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(name.strip() for name in given if name.strip()))
    if len(wanted) > MOST_EVENT_TYPES:
        raise InputRefused(f"that are {len(wanted)} event types; give at most {MOST_EVENT_TYPES}, or none for all.")
    for name in wanted:
        check_key(name, what="event type", max_bytes=100)
    return wanted


def _locked(tenant: Tenant, endpoint_id: UUID) -> WebhookEndpoint:
    found = living(tenant).select_for_update().filter(pk=endpoint_id).first()
    if found is None:
        raise EndpointNotFound(f"{tenant} has no webhook endpoint {endpoint_id}.")
    endpoint: WebhookEndpoint = found
    return endpoint


def _sealed(secret: str) -> dict[str, str]:
    return {"secret": sealing.seal(secret.encode()).decode(), "sealed_with": sealing.key_id()}


def _facts(endpoint: WebhookEndpoint) -> dict[str, Any]:
    return {
        "url": mask_addresses(endpoint.url),
        "event_types": endpoint.event_types,
        "description": endpoint.description,
    }


def _audit(
    endpoint: WebhookEndpoint, verb: str, *, actor: str, reason: str, after: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    AuditEntry.objects.create(
        tenant_id=endpoint.tenant_id, actor=actor, verb=verb, target_kind="webhook endpoint",
        target_id=str(endpoint.pk), reason=kept_reason(reason), before=dict(before or {}), after=dict(after or {}),
    )  # fmt: skip

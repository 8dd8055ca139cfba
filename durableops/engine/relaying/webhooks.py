"""Delivering a webhook: to one endpoint, signed with its secrets, and taken as delivered only by a 2xx."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from durableops import sealing
from durableops.authoring.definitions import OUTBOX_RETRY, ToolDefinition
from durableops.authoring.source import SourceRef
from durableops.checkpoints import codec
from durableops.clock import monotonic
from durableops.effects import addresses, webhooks
from durableops.engine import endpoints
from durableops.engine.calling import RETRY_STATUS, retry_after_seconds
from durableops.engine.database import Database
from durableops.engine.ops import Attempt
from durableops.engine.relaying import guarded
from durableops.engine.relaying.delivery import Delivery
from durableops.errors import CallFailed, Refused, RetryLater
from durableops.masking import SEALED
from runs.relaying import Taken

_ENDPOINTS = """
SELECT id, url, secret, CASE WHEN former_until > now() THEN former_secret ELSE '' END, enabled, removed_at IS NOT NULL
FROM runs_webhook_endpoint WHERE id = ANY(%s)"""
GONE = 410


_UNKNOWN_EVENT = ToolDefinition(
    name="webhook", function=lambda call: None, safety="outbox", source=SourceRef(file=__file__, line=0), timeout=15.0,
    retry=OUTBOX_RETRY,
)  # fmt: skip


class EndpointGone(Refused):
    """The endpoint answered 410: it wants no more of this, and was disabled."""

    code = "call.endpoint_gone"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where to, as it was when the message was taken up."""

    id: UUID
    url: str
    secret: str
    former_secret: str
    enabled: bool
    removed: bool


def load(database: Database, ids: Iterable[UUID]) -> dict[UUID, Endpoint]:
    """The endpoints with these ids."""
    names = tuple(Endpoint.__dataclass_fields__)
    rows = database.read(_ENDPOINTS, [sorted(set(ids))])
    return {row[0]: Endpoint(**dict(zip(names, row, strict=True))) for row in rows}


def unknown_event(taken: Taken) -> ToolDefinition | None:
    """How an event is delivered whose declaration this relay does not have: like others, unless parts are encrypted."""
    return None if SEALED in taken.body else _UNKNOWN_EVENT


class WebhookDelivery(Delivery):
    """A message on its way to an endpoint."""

    def __init__(
        self, taken: Taken, tool: ToolDefinition, endpoint: Endpoint, *, claimed_at: float, gone: Callable[[], bool]
    ) -> None:
        super().__init__(taken, tool, claimed_at=claimed_at, gone=gone)
        self._endpoint = endpoint

    def _send(self, request: dict[str, Any]) -> Attempt:
        began = monotonic()
        try:
            return Attempt(value=self._post(request), elapsed=monotonic() - began)
        except EndpointGone as gone:
            endpoints.disable(
                self._endpoint.id, tenant=endpoints.tenant_of(self._endpoint.id), actor="relay", reason=str(gone)
            )
            return Attempt(error=gone, elapsed=monotonic() - began)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, it was not delivered
            return Attempt(error=error, elapsed=monotonic() - began)

    def _post(self, request: dict[str, Any]) -> dict[str, Any]:
        taken, endpoint = self.taken, self._endpoint
        body = webhooks.body_of(taken.event_type, codec.canonical(request, what="event"), at=taken.created_at)
        sealed = [endpoint.secret, *([endpoint.former_secret] if endpoint.former_secret else [])]
        headers = webhooks.headers_of(
            taken.key, body, secrets_of=[sealing.unseal(one.encode()).decode() for one in sealed],
            at=datetime.now(UTC), attempt=max(1, taken.sendings),
        )  # fmt: skip
        # Judged when it was saved, and once more: settings change, and the record may be older than a rule.
        target = addresses.read(endpoint.url, allow_http=endpoints.http_is_allowed())
        self._call(request).check()
        return _judged(guarded.post(target, headers=headers, body=body, timeout=self.tool.timeout))


def _judged(answer: guarded.Answer) -> dict[str, Any]:
    status = answer.status
    if 200 <= status < 300:
        return {"status": status}
    if status == GONE:
        raise EndpointGone("the endpoint answered 410: it is gone for good, and was disabled.", status=status)
    if status in RETRY_STATUS:
        raise RetryLater(retry_after_seconds(answer.retry_after), f"the endpoint answered {status}.", status=status)
    followed = " Redirects are not followed: have its address changed." if 300 <= status < 400 else ""
    raise CallFailed(f"the endpoint answered {status}.{followed}", status=status)

"""`webhook`: declares an event of which other systems may be told. Who they are is data, edited on a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from durableops.authoring import registry
from durableops.authoring.checks import check_name, check_tool
from durableops.authoring.definitions import OUTBOX_RETRY, OnPoison, Scope, ToolDefinition
from durableops.authoring.policies import Retry
from durableops.authoring.source import source_of_caller

WEBHOOK_TIMEOUT_SECONDS = 15.0
PREFIX = "webhook."


def webhook(
    event_type: str,
    /,
    *,
    name: str | None = None,
    timeout: float = WEBHOOK_TIMEOUT_SECONDS,
    retry: Retry | None = None,
    on_poison: OnPoison = "hold",
    deliver_within: timedelta | None = None,
    scope: Scope = "run",
    secret: Sequence[str] = (),
) -> ToolDefinition:
    """Declare an event; `run.call(it, resource=..., **data)` tells every endpoint that subscribed.

    A tool of class `outbox` without a function: the call leaves one message for each endpoint
    of the tenant that wants `event_type`, and a relay sends them as Standard Webhooks, at least
    once, with the same `webhook-id` each time. The keyword arguments are the event's data. An
    event that nobody wants is done at once. `name` is the tool's stable name, by default
    `webhook.` and the event type. The other options are those of an outbox tool. Raises
    DefinitionError.
    """
    source = source_of_caller()
    check_name(event_type, what="webhook event", at=source)
    definition = ToolDefinition(
        name=name if name is not None else f"{PREFIX}{event_type}",
        function=_told_by_a_relay,
        safety="outbox",
        source=source,
        timeout=timeout,
        retry=retry if retry is not None else OUTBOX_RETRY,
        scope=scope,
        on_poison=on_poison,
        deliver_within=deliver_within,
        event_type=event_type,
        secret=tuple(secret),
    )
    check_tool(definition)
    registry.current().add_tool(definition)
    return definition


def _told_by_a_relay(call: Any, **data: Any) -> None:
    raise NotImplementedError("a webhook has no function: a relay sends it to the endpoints that want it.")

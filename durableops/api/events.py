"""Events from other systems over the API. Matching them with waits is the engine's."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router
from ninja.responses import Status

from durableops.access import VERBS
from durableops.api.auth import client_of
from durableops.api.bodies import idempotency_key
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import EventReceived, EventRequest
from durableops.engine.inbound import send_event
from durableops.errors import InputRefused

router = Router(tags=["events"])


@router.post(
    "",
    response={201: EventReceived, 200: EventReceived, **REFUSALS},
    operation_id="send_event",
    summary="Send an event",
    **asks(VERBS["send_event"], key=True),
)
def send(request: HttpRequest, response: HttpResponse, body: EventRequest) -> Status[EventReceived]:
    """Send an event. It answers every run of the tenant that waits for it now, and is kept for those that will.

    With an `Idempotency-Key`, sent twice it is one event; the same key with other content is refused (409).
    """
    client = client_of(request)
    try:
        received = send_event(
            body.name,
            tenant=client.tenant,
            actor=client.actor,
            correlation=body.correlation or "",
            payload=body.payload,
            event_key=idempotency_key(request),
        )
    except InputRefused as refused:
        if refused.path and refused.context.get("place") is None:
            raise InputRefused(refused.detail, path=f"/payload{refused.path}", place="body") from None
        raise
    if not received.created:
        response["Idempotent-Replayed"] = "true"
    shown = EventReceived(id=received.event_id, created=received.created, answered=received.answered)
    return Status(201 if received.created else 200, shown)

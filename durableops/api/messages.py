"""Messages of the outbox over the API: those nobody took, those that wait, and what people decide about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, Field

from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import LARGEST_ID, opened, refuse_unknown, sealed
from durableops.api.schemas import RunError, VerbDone, VerbRequest
from durableops.api.verbs import done
from durableops.engine import message_view, messages
from durableops.engine.message_view import Message as Seen
from durableops.engine.message_view import Place
from durableops.errors import MessageNotFound
from durableops.masking import mask_text

router = Router(tags=["messages"])


class MessageQuery(BaseModel):
    """Which messages."""

    state: Literal["poisoned", "pending"] = Field(
        "poisoned",
        description="`poisoned`: not tried any more until somebody decides. `pending`: the next of each lane.",
    )
    limit: int = Field(100, ge=1, le=500)
    cursor: str = Field("", description="`next` of the page before.")


class Message(BaseModel):
    """One message on its way to one destination."""

    id: int
    effect: int
    run: UUID
    destination: str
    tool: str
    resource: str
    downstream_key: str = Field(description="The same each time it is sent.")
    state: Literal["pending", "delivered", "poisoned", "skipped"]
    attempts: int
    sent: int = Field(description="How often it left, or may have left.")
    created_at: datetime
    attempted_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None = Field(description="When it is tried next; null while it does not wait for that.")
    holds_lane: bool = Field(description="Whether those behind it wait until somebody decides about it.")
    in_lane: int = Field(description="Messages of its lane that have not left yet.")
    error: RunError | None


class MessagePage(BaseModel):
    messages: list[Message]
    next: str | None = Field(description="Give it as `cursor` for the next page; null at the end.")


@router.get(
    "", response={200: MessagePage, **REFUSALS}, operation_id="list_messages", summary="List messages of the outbox",
    **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, query: Annotated[MessageQuery, Query()]) -> MessagePage:
    """Messages that nobody took, oldest first; or the next one of each lane that waits, by destination and time."""
    client = client_of(request)
    refuse_unknown(request, MessageQuery)
    filters = f"messages {query.state}"
    place = opened(query.cursor, filters=filters) if query.cursor else []
    if query.state == "poisoned":
        after = place[0] if place else 0
        rows = message_view.poisoned(tenant=client.tenant, limit=query.limit + 1, after=after)
    else:
        at = Place(destination=place[0], due_at=place[1], lane_id=place[2]) if place else None
        rows = message_view.waiting(tenant=client.tenant, limit=query.limit + 1, after=at)
    last = rows[query.limit - 1] if len(rows) > query.limit else None
    following: list[Any] = []
    if last is not None:
        following = [last.id] if query.state == "poisoned" else list(astuple(message_view.place_of(last)))
    return MessagePage(
        messages=[_shown(row) for row in rows[: query.limit]],
        next=sealed(following, filters=filters) if following else None,
    )


@router.get(
    "/{int:message_id}", response={200: Message, **REFUSALS}, operation_id="get_message", summary="Read one message",
    **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, message_id: int) -> Message:
    """One message: where it goes, how often it was sent, and why it is where it is."""
    return _shown(message_view.find(_known(message_id), tenant=client_of(request).tenant))


def _verb[V: Callable[..., Status[VerbDone]]](path: str, verb: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:message_id}}/{path}", response={200: VerbDone, **REFUSALS}, operation_id=f"{path}_message",
        summary=summary, **asks(VERBS[verb]),
    )  # fmt: skip
    return decorate


@_verb("retry", "retry_message", "Have a message tried now")
def retry(request: HttpRequest, message_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Have a message tried now: one that waits for its next attempt, or a poisoned one, with its attempts anew."""
    return _done(request, message_id, messages.retry_message, reason=body.reason)


@_verb("skip", "skip_message", "Give a message up")
def skip(request: HttpRequest, message_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Give a message up: it is not delivered any more, and those behind it go on."""
    return _done(request, message_id, messages.skip_message, reason=body.reason)


@_verb("redeliver", "redeliver", "Send a message once more")
def redeliver(request: HttpRequest, message_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Send a message once more that was delivered or skipped, with its old key: its receiver may know it already."""
    return _done(request, message_id, messages.redeliver, reason=body.reason)


def _done(request: HttpRequest, message_id: int, verb: Callable[..., Any], *, reason: str) -> Status[VerbDone]:
    client = client_of(request)
    return done(verb(_known(message_id), tenant=client.tenant, actor=client.actor, reason=reason))


def _known(message_id: int) -> int:
    if message_id > LARGEST_ID:
        raise MessageNotFound(f"there is no message {str(message_id)[:20]}… here.")
    return message_id


def _shown(row: Seen) -> Message:
    failed = RunError(kind=row.error_class, message=mask_text(row.error_message), fingerprint="")
    return Message(
        id=row.id, effect=row.effect_id, run=row.run_id, destination=row.destination, tool=row.tool,
        resource=row.resource, downstream_key=row.key, state=row.state, attempts=row.attempts, sent=row.sendings,
        created_at=row.created_at, attempted_at=row.attempted_at, finished_at=row.finished_at, due_at=row.due_at,
        holds_lane=row.holds_lane, in_lane=row.depth, error=failed if row.error_class else None,
    )  # fmt: skip

"""What happened to a run, and what it did to the world, over the API: its timeline and its effects."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Query, Router
from pydantic import BaseModel, Field

from durableops.access import Permission
from durableops.api.auth import Client, client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import LARGEST_ID, refuse_unknown
from durableops.api.schemas import Effect, EffectPage, Happening, RunError, Timeline
from durableops.masking import mask, mask_text
from runs.models import IdempotencyRecord, Run, RunEvent

MAX_PAGE = 500
MAY_QUOTE_PAYLOADS = ("error", "traceback")
"""What an author's exception says, and where: for tokens with `payloads:read`."""

router = Router(tags=["story"])


class RowQuery(BaseModel):
    """Which page of a run's rows."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=MAX_PAGE)


@router.get(
    "/{uuid:run_id}/timeline",
    response={200: Timeline, **REFUSALS},
    operation_id="get_timeline",
    summary="Read what happened to a run",
    **asks(Permission.VIEW),
)
def timeline(request: HttpRequest, run_id: UUID, query: Annotated[RowQuery, Query()]) -> Timeline:
    """What happened to a run, oldest first: moves, resumes, calls that timed out or were sent again, doubts, refusals.

    To follow a run, read its last pages again rather than asking only for what is new: of two things that happen at
    once the one with the higher number may be there first.
    """
    client = client_of(request)
    rows, following = _page(request, RunEvent.objects.filter(run=_run(client, run_id)), query)
    return Timeline(happenings=[_happening(row, sight=client.sees_payloads) for row in rows], next=following)


@router.get(
    "/{uuid:run_id}/effects",
    response={200: EffectPage, **REFUSALS},
    operation_id="list_effects_of_run",
    summary="Read what a run did to the world",
    **asks(Permission.VIEW),
)
def effects(request: HttpRequest, run_id: UUID, query: Annotated[RowQuery, Query()]) -> EffectPage:
    """What a run did to the world, in the order of its intents, with what is known of each outcome."""
    run = _run(client_of(request), run_id)
    rows, following = _page(request, IdempotencyRecord.objects.filter(run=run), query)
    return EffectPage(effects=[_effect(row) for row in rows], next=following)


def _run(client: Client, run_id: UUID) -> Run:
    run = client.runs().only("id").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    return run


def _page[M: (RunEvent, IdempotencyRecord)](
    request: HttpRequest, rows: QuerySet[M], query: RowQuery
) -> tuple[list[M], int | None]:
    refuse_unknown(request, RowQuery)
    found = list(rows.filter(pk__gt=query.after).order_by("pk")[: query.limit + 1])
    shown = found[: query.limit]
    return shown, shown[-1].pk if len(found) > query.limit else None


def _happening(row: RunEvent, *, sight: bool) -> Happening:
    hidden = () if sight else MAY_QUOTE_PAYLOADS
    data: dict[str, Any] = mask({name: value for name, value in row.data.items() if name not in hidden})
    return Happening(
        id=row.pk,
        at=row.at,
        event=row.event,
        step=row.step_id,
        from_state=row.from_state,
        to_state=row.to_state,
        actor=row.actor,
        reason=mask_text(row.reason),
        fence=row.fence,
        worker=row.worker_id,
        data=data,
    )


def _effect(row: IdempotencyRecord) -> Effect:
    failed = RunError(kind=row.error_class, message=mask_text(row.error_message), fingerprint="")
    return Effect(
        id=row.pk,
        step=row.step_id,
        tool=row.tool,
        safety=row.safety,
        scope=row.scope,
        system=row.system,
        resource=row.resource,
        key=row.author_key,
        downstream_key=row.key,
        request_hash=row.request_hash,
        state=row.state,
        sent=row.attempts,
        reused=row.reused,
        intended_at=row.intended_at,
        completed_at=row.completed_at,
        downstream_id=row.downstream_id,
        error=failed if row.error_class else None,
    )

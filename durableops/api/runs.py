"""Runs over the API: start, read, list. Each address names the permission it needs; verbs live in `verbs`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, Field

from durableops.access import VERBS, Permission
from durableops.api import reading
from durableops.api.auth import client_of
from durableops.api.bodies import idempotency_key, refuse_far
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.api.schemas import Instant, Run, RunPage, RunSummary, StartRequest
from durableops.checkpoints.codec import check_key
from durableops.engine.start import start as start_run
from durableops.errors import InputRefused
from runs.states import State

MAX_PAGE = 100
MAX_LABEL_FILTERS = 5

router = Router(tags=["runs"])


@router.post(
    "",
    response={201: RunSummary, 200: RunSummary, **REFUSALS},
    operation_id="start_run",
    summary="Start a run",
    **asks(VERBS["start"], key=True),
)
def start(request: HttpRequest, response: HttpResponse, body: StartRequest) -> Status[RunSummary]:
    """Start a run.

    With an `Idempotency-Key` the same request may be sent any number of times: the first answers 201, every later one
    200 with the same run and `Idempotent-Replayed: true`. The same key with another workflow or input is refused (409).
    A tenant that has started what it may in a minute is told when to try again (429 with `Retry-After`).
    Refusals are not remembered: correct the request and send it with the same key.
    """
    client = client_of(request)
    refuse_far(body.start_at, path="/start_at")
    try:
        started = start_run(
            body.workflow,
            body.input,
            tenant=client.tenant,
            actor=client.actor,
            start_key=idempotency_key(request),
            version=body.version,
            labels=body.labels,
            priority=body.priority,
            start_at=body.start_at,
        )
    except InputRefused as refused:
        # The engine's pointers begin at the input; ours at the body.
        if refused.path and refused.context.get("place") is None:
            raise InputRefused(refused.detail, path=f"/input{refused.path}", place="body") from None
        raise
    if not started.created:
        response["Idempotent-Replayed"] = "true"
    response["Location"] = f"/api/v1/runs/{started.run_id}"
    return Status(201 if started.created else 200, reading.summary_of(client, started.run_id))


class RunQuery(BaseModel):
    """Filters of the list; all must hold."""

    state: list[State] = Field(default_factory=list, description="Any of these.")
    workflow: str = Field("", max_length=100)
    label: list[str] = Field(
        default_factory=list, max_length=MAX_LABEL_FILTERS, description="As `name:value`; all of these."
    )
    since: Instant | None = Field(None, description="Created at or after this; with its zone.")
    limit: int = Field(50, ge=1, le=MAX_PAGE)
    cursor: str = Field("", description="`next` of the page before.")


@router.get(
    "",
    response={200: RunPage, **REFUSALS},
    operation_id="list_runs",
    summary="List runs, newest first",
    **asks(Permission.VIEW),
)
def list_runs(request: HttpRequest, query: Annotated[RunQuery, Query()]) -> RunPage:
    """List runs, newest first.

    With `workflow`, `label` or several states a page may be short, even empty, and still have a `next`: go on until it
    is null.
    """
    refuse_unknown(request, RunQuery, what="filter")
    wanted = reading.RunFilter(
        states=[state.value for state in query.state],
        workflow=_text(query.workflow, "workflow") if query.workflow else "",
        labels=_labels(query.label),
        since=query.since,
    )
    return reading.page_of(client_of(request), wanted, limit=query.limit, cursor=query.cursor)


@router.get(
    "/{uuid:run_id}",
    response={200: Run, **REFUSALS},
    operation_id="get_run",
    summary="Read one run",
    **asks(Permission.VIEW),
)
def get_run(request: HttpRequest, run_id: UUID) -> Run:
    """One run: why it is where it is, what it waits for, how far it is, and what came of it."""
    return reading.run_of(client_of(request), run_id)


def _text(text: str, name: str) -> str:
    try:
        return check_key(text, what=name)
    except InputRefused as refused:
        raise InputRefused(refused.detail, path=name, place="query") from None


def _labels(texts: list[str]) -> dict[str, str]:
    pairs = [_label(text) for text in texts]
    if len({name for name, _value in pairs}) < len(pairs):
        raise InputRefused("a label is named twice; a run has one value for each.", path="label", place="query")
    return dict(pairs)


def _label(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise InputRefused(f"label {text[:80]!r} is not name:value.", path="label", place="query")
    return _text(name, "label"), _text(value, "label")

"""Compensation over the API: what is owed and being undone, and what people decide about each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import BaseModel, Field

from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import LARGEST_ID, opened, refuse_unknown, sealed
from durableops.api.schemas import Reason, Request, VerbRequest
from durableops.engine import compensating
from durableops.engine.acting import Done
from durableops.engine.compensation import reading
from durableops.errors import CompensationNotFound
from durableops.masking import mask_text
from runs import models

_FILTERS = "compensations"

router = Router(tags=["compensations"])


class CompensationQuery(BaseModel):
    """Which compensations."""

    run: UUID | None = Field(None, description="All of one run, settled or not; else those that are not settled.")
    limit: int = Field(100, ge=1, le=500)
    cursor: str = Field("", description="`next` of the page before.")


class DecisionRequest(Request):
    reason: Reason = ""


class DoneRequest(DecisionRequest):
    evidence: str = Field(
        min_length=1, max_length=compensating.MAX_EVIDENCE_CHARACTERS,
        description="What proves it: a receipt's number, a link.",
    )  # fmt: skip
    downstream_id: str = Field("", max_length=compensating.MAX_DOWNSTREAM_CHARACTERS)


class Compensation(BaseModel):
    """One effect that is to be undone, or was."""

    id: int
    run: UUID = Field(description="The run that did it.")
    effect: int
    tool: str = Field(description="Of the effect.")
    resource: str
    downstream_id: str = Field(description="The other side's id of the undoing, where there is one.")
    state: Literal["owed", "proposed", "approved", "running", "done", "failed", "waived"]
    state_since: datetime
    how: Literal["tool", "person"]
    undone_by: str = Field(description="The tool that undoes it; empty where a person does.")
    instructions: str
    four_eyes: bool = Field(description="Whether a second person has to agree.")
    because: str = Field(description="Why it is owed.")
    owed_at: datetime
    linked_run: UUID | None = Field(description="The run that undoes it; null while nobody works on it.")
    error: str
    proposed_by: str
    approved_by: str
    claimed_by: str
    settled_by: str
    settled_at: datetime | None
    evidence: str
    reason: str


class CompensationPage(BaseModel):
    compensations: list[Compensation]
    next: str | None = Field(description="Give it as `cursor` for the next page; null at the end.")


class CompensationDone(BaseModel):
    compensation: int
    run: UUID
    state: str = Field(description="Of the compensation, after it.")
    detail: str


@router.get(
    "", response={200: CompensationPage, **REFUSALS}, operation_id="list_compensations",
    summary="List what is owed or being undone", **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, query: Annotated[CompensationQuery, Query()]) -> CompensationPage:
    """What is not settled, oldest first, also of runs that ended long ago; or all of one run, newest effect first."""
    client = client_of(request)
    refuse_unknown(request, CompensationQuery)
    if query.run is not None:
        found = reading.of_run(query.run, tenant=client.tenant)
        return CompensationPage(compensations=[_shown(one) for one in found], next=None)
    after = None
    if query.cursor:
        at, number = opened(query.cursor, filters=_FILTERS)
        after = (datetime.fromisoformat(at), number)
    rows = reading.unsettled(tenant=client.tenant, limit=query.limit + 1, after=after)
    last = rows[query.limit - 1] if len(rows) > query.limit else None
    return CompensationPage(
        compensations=[_shown(one) for one in rows[: query.limit]],
        next=None if last is None else sealed([last.owed_at.isoformat(), last.pk], filters=_FILTERS),
    )


@router.get(
    "/{int:compensation_id}", response={200: Compensation, **REFUSALS}, operation_id="get_compensation",
    summary="Read one compensation", **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, compensation_id: int) -> Compensation:
    """One effect that is to be undone: how, how far that is, and who said so."""
    return _shown(reading.find(_known(compensation_id), tenant=client_of(request).tenant))


def _verb[V: Callable[..., CompensationDone]](path: str, name: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:compensation_id}}/{path}", response={200: CompensationDone, **REFUSALS},
        operation_id=f"{name}_compensation", summary=summary, **asks(VERBS["decide_compensation"]),
    )  # fmt: skip
    return decorate


@_verb("approve", "approve", "Agree with what another proposed")
def approve(request: HttpRequest, compensation_id: int, body: DecisionRequest) -> CompensationDone:
    """Agree that a tool undoes it, or that it was done by hand as another says. Refused (409) to who proposed it."""
    return _done(request, compensation_id, compensating.approve, reason=body.reason)


@_verb("send-back", "send_back", "Do not take a proof")
def send_back(request: HttpRequest, compensation_id: int, body: VerbRequest) -> CompensationDone:
    """Do not take what another says as proof: it is to be done again, or proved otherwise."""
    return _done(request, compensation_id, compensating.send_back, reason=body.reason)


@_verb("done", "finish", "Say that it was undone by hand")
def finish(request: HttpRequest, compensation_id: int, body: DoneRequest) -> CompensationDone:
    """Say that it was undone by hand, and what proves it. With four eyes it is a proposal that a second has to agree
    with."""
    more = {"evidence": body.evidence, "downstream_id": body.downstream_id}
    return _done(request, compensation_id, compensating.report_done, reason=body.reason, **more)


@_verb("retry", "retry", "Let its tool try again")
def retry(request: HttpRequest, compensation_id: int, body: VerbRequest) -> CompensationDone:
    """Let a tool that could not undo it try once more."""
    return _done(request, compensation_id, compensating.try_again, reason=body.reason)


@_verb("waive", "waive", "Leave it as it is")
def waive(request: HttpRequest, compensation_id: int, body: VerbRequest) -> CompensationDone:
    """Decide that it stays as it is, for good. The reason stands for ever."""
    return _done(request, compensation_id, compensating.waive, reason=body.reason)


@_verb("claim", "claim", "Say that you are on it")
def claim(request: HttpRequest, compensation_id: int, body: DecisionRequest) -> CompensationDone:
    """Note who is on it. It keeps nobody from deciding."""
    return _done(request, compensation_id, compensating.claim, reason=body.reason)


@_verb("unclaim", "unclaim", "Say that nobody is on it any more")
def unclaim(request: HttpRequest, compensation_id: int, body: DecisionRequest) -> CompensationDone:
    """Note that nobody is on it any more."""
    return _done(request, compensation_id, compensating.unclaim, reason=body.reason)


def _done(
    request: HttpRequest, compensation_id: int, verb: Callable[..., Done], *, reason: str, **more: str
) -> CompensationDone:
    client = client_of(request)
    found = verb(_known(compensation_id), tenant=client.tenant, actor=client.actor, reason=reason, **more)
    assert found.run_id is not None  # verbs on what a run did always name it
    return CompensationDone(compensation=compensation_id, run=found.run_id, state=found.state, detail=found.message)


def _known(compensation_id: int) -> int:
    if compensation_id > LARGEST_ID:
        raise CompensationNotFound(f"there is no compensation {str(compensation_id)[:20]}… here.")
    return compensation_id


def _shown(one: models.Compensation) -> Compensation:
    return Compensation(
        id=one.pk, run=one.run_id, effect=one.effect_id, tool=one.effect.tool, resource=one.effect.resource,
        downstream_id=one.downstream_id, state=one.state, state_since=one.state_since, how=one.how,
        undone_by=one.tool, instructions=one.instructions, four_eyes=one.four_eyes, because=mask_text(one.because),
        owed_at=one.owed_at, linked_run=one.linked_run_id, error=mask_text(one.error), proposed_by=one.proposed_by,
        approved_by=one.approved_by, claimed_by=one.claimed_by, settled_by=one.settled_by,
        settled_at=one.settled_at, evidence=mask_text(one.evidence), reason=mask_text(one.reason),
    )  # fmt: skip

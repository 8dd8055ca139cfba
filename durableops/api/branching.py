"""Going back to a checkpoint and undoing what a run did, over the API: the places there are, and the verbs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, Field

from durableops.access import VERBS, Permission
from durableops.api import shaping
from durableops.api.auth import Client, client_of, no_such_run
from durableops.api.bodies import idempotency_key, refuse_far
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.api.schemas import GuardedRequest, Instant, Payload, VerbDone
from durableops.api.verbs import done
from durableops.checkpoints.codec import hash_hex
from durableops.engine import branching, compensating, guard
from durableops.errors import NotPermitted, RunNotFound
from runs import models

LARGEST_SEQ = 2**31 - 1

router = Router(tags=["going back"])


class CheckpointQuery(BaseModel):
    """Which page of a run's checkpoints."""

    after: int = Field(-1, ge=-1, le=LARGEST_SEQ, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


class Checkpoint(BaseModel):
    """A position that was committed, and that a run may go back to or be forked from."""

    seq: int
    lineage: int = Field(description="Grows each time the run goes back or is migrated.")
    kind: str = Field(description="`start`, `step`, `page`, `finish`, or how a later lineage began: `branch` …")
    step: str = Field(description="What was committed.")
    next_step: str = Field(description="What a run enters from here; empty where it had finished.")
    version: int
    at: datetime


class CheckpointPage(BaseModel):
    checkpoints: list[Checkpoint]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class CheckpointDetail(Checkpoint):
    state: Payload | None = Field(description="Null once retention has removed what holds it.")


class RetryFromRequest(GuardedRequest):
    checkpoint: int = Field(ge=0, le=LARGEST_SEQ)
    deadline_at: Instant | None = Field(None, description="Needed when the run's deadline has passed.")


class ForkRequest(GuardedRequest):
    checkpoint: int = Field(ge=0, le=LARGEST_SEQ)
    state: dict[str, Any] | None = Field(
        None,
        description="The whole edited state, for tokens with `payloads:read`; a value left as its mask keeps what is "
        "behind it. By default the state as it was.",
    )


@router.get(
    "/{uuid:run_id}/checkpoints", response={200: CheckpointPage, **REFUSALS}, operation_id="list_checkpoints",
    summary="List a run's checkpoints", **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, run_id: UUID, query: Annotated[CheckpointQuery, Query()]) -> CheckpointPage:
    """Where a run has been, oldest first."""
    refuse_unknown(request, CheckpointQuery)
    rows = _checkpoints(client_of(request), run_id).filter(seq__gt=query.after).order_by("seq")
    found = list(rows.defer("state", "output")[: query.limit + 1])
    shown = found[: query.limit]
    return CheckpointPage(
        checkpoints=[Checkpoint(**_facts(row)) for row in shown],
        next=shown[-1].seq if len(found) > query.limit else None,
    )


@router.get(
    "/{uuid:run_id}/checkpoints/{int:seq}", response={200: CheckpointDetail, **REFUSALS},
    operation_id="get_checkpoint", summary="Read one checkpoint", **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, run_id: UUID, seq: int) -> CheckpointDetail:
    """One checkpoint with its state: what a fork may be given edited."""
    client = client_of(request)
    row = _checkpoints(client, run_id).filter(seq=min(seq, LARGEST_SEQ)).defer("output").first()
    if row is None:
        raise RunNotFound(f"run {run_id} has no checkpoint {str(seq)[:20]}.")
    text = models.Checkpoint.objects.filter(run_id=run_id, seq=row.state_seq).values_list("state", flat=True).first()
    shown = None if text is None else shaping.payload(text, checkpoint=row.state_seq, sight=client.sees_payloads)
    return CheckpointDetail(**_facts(row), state=shown)


@router.post(
    "/{uuid:run_id}/retry-from", response={200: VerbDone, **REFUSALS}, operation_id="retry_run_from",
    summary="Let a run go on from an earlier checkpoint", **asks(VERBS["retry_from"]),
)  # fmt: skip
def retry_from(request: HttpRequest, run_id: UUID, body: RetryFromRequest) -> Status[VerbDone]:
    """Let a run that no worker has in hand go on from an earlier checkpoint, in a new lineage. Calls that were made are
    answered from the record; reads and questions are made again."""
    client = client_of(request)
    refuse_far(body.deadline_at, path="/deadline_at")
    return done(
        branching.retry_from(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, seq=body.checkpoint,
            plan_hash=body.plan_hash or guard.UNSEEN, deadline_at=body.deadline_at,
        )
    )  # fmt: skip


@router.post(
    "/{uuid:run_id}/fork", response={201: VerbDone, 200: VerbDone, **REFUSALS}, operation_id="fork_run",
    summary="Start a new run at a checkpoint", **asks(VERBS["fork"], key=True),
)  # fmt: skip
def fork(request: HttpRequest, response: HttpResponse, run_id: UUID, body: ForkRequest) -> Status[VerbDone]:
    """Start a new run at a checkpoint of another, with the state as it was or edited. What it calls goes out anew,
    under keys of its own. `run` of the answer is the fork; sent again with the same `Idempotency-Key` it is the same.
    """
    client = client_of(request)
    if body.state is not None and not client.sees_payloads:
        raise NotPermitted(
            f"an edited state needs the scope {Permission.PAYLOADS.value}. Nothing was started.",
            needs=Permission.PAYLOADS.value,
        )
    key = idempotency_key(request)
    made = branching.fork(
        run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, seq=body.checkpoint, state=body.state,
        plan_hash=body.plan_hash or guard.UNSEEN, once=f"api-{uuid4() if key is None else hash_hex(key)}",
    )  # fmt: skip
    response["Location"] = f"/api/v1/runs/{made.run_id}"
    if made.replayed:
        response["Idempotent-Replayed"] = "true"
    return Status(200 if made.replayed else 201, done(made).value)


@router.post(
    "/{uuid:run_id}/compensate", response={200: VerbDone, **REFUSALS}, operation_id="compensate_run",
    summary="Undo what a finished run did", **asks(VERBS["compensate"]),
)  # fmt: skip
def compensate(request: HttpRequest, run_id: UUID, body: GuardedRequest) -> Status[VerbDone]:
    """Undo what a finished run, and all below it, had done: newest first, by a linked run. It needs the `plan_hash`
    of `GET /runs/{id}/plans/compensate` where there is something to undo."""
    client = client_of(request)
    return done(
        compensating.compensate(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason,
            plan_hash=body.plan_hash or guard.UNSEEN,
        )
    )  # fmt: skip


def _checkpoints(client: Client, run_id: UUID) -> Any:
    if not client.runs().filter(pk=run_id).exists():
        raise no_such_run(run_id)
    return models.Checkpoint.objects.filter(run_id=run_id).select_related("plan", "run")


def _facts(row: models.Checkpoint) -> dict[str, Any]:
    return {
        "seq": row.seq, "lineage": row.lineage, "kind": row.kind, "step": row.step_id, "next_step": row.next_step,
        "version": row.plan.version, "at": row.at,
    }  # fmt: skip

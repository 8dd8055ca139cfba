"""What a verb would send again, and what it would reuse, before it is asked for. The guard's plans over the API."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from django.db import connection
from django.http import HttpRequest
from ninja import Query, Router
from pydantic import BaseModel, Field

from durableops.access import Permission
from durableops.api.auth import client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.engine import guard
from durableops.errors import InputRefused
from runs.models import Checkpoint

LARGEST_SEQ = 2**31 - 1

router = Router(tags=["plans"])


class PlannedCalls(BaseModel):
    """So many calls of one tool that meet the same fate."""

    category: Literal[
        "again", "anew", "doubt", "given_up", "left", "pending", "read", "reused", "settled", "shared", "task", "undo",
        "unsent",
    ] = Field(
        description="`again`: with its old key; `anew`: with another key, so that the other side may do it twice; "
        "`doubt`: not sent, waits for a person; `reused`, `shared`, `settled`: answered from the record."
    )  # fmt: skip
    tool: str
    safety: Literal["read", "local", "keyed", "outbox", "legacy"]
    calls: int
    runs: int
    samples: list[str] = Field(description="A resource or two of them.")


class Plan(BaseModel):
    """What a verb would do to a run as it is now."""

    verb: str
    plan_hash: str = Field(description="To be sent with the verb; empty where nothing depends on it (`cancel`).")
    harmless: bool = Field(description="Whether the verb may be asked for without having seen this.")
    calls: list[PlannedCalls]
    waits: dict[str, int] = Field(description="How many waits of each kind are opened anew.")


class PlanQuery(BaseModel):
    """At which place."""

    checkpoint: int | None = Field(None, ge=0, le=LARGEST_SEQ, description="For `retry_from` and `fork`.")
    version: int | None = Field(None, ge=1, le=LARGEST_SEQ, description="For `migrate`; by default the newest.")


@router.get(
    "/{uuid:run_id}/plans/{verb}", response={200: Plan, **REFUSALS}, operation_id="get_plan",
    summary="Read what a verb would send again", **asks(Permission.VIEW),
)  # fmt: skip
def plan(
    request: HttpRequest,
    run_id: UUID,
    verb: Literal["retry", "retry_from", "fork", "migrate", "pin", "compensate", "cancel"],
    query: Annotated[PlanQuery, Query()],
) -> Plan:
    """What a verb would send again, by class, and what it would reuse, as the run is now. It says nothing about
    whether the run's state allows the verb. What settling a doubt would do stands with the doubt."""
    client = client_of(request)
    refuse_unknown(request, PlanQuery)
    run = client.runs().only("id").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    _check_place(run_id, verb, query)
    with connection.cursor() as cursor:
        found = guard.plan(cursor, verb, run_id, seq=query.checkpoint, version=query.version)
    return Plan(**found.as_json())


def _check_place(run_id: UUID, verb: str, query: PlanQuery) -> None:
    takes = {"checkpoint": verb in guard.AT_CHECKPOINT, "version": verb == "migrate"}
    for name, fits in takes.items():
        if getattr(query, name) is not None and not fits:
            raise InputRefused(f"{verb} takes no {name}; leave it out.", path=name, place="query")
    if not takes["checkpoint"]:
        return
    if query.checkpoint is None:
        raise InputRefused(f"say at which checkpoint {verb} is to begin.", path="checkpoint", place="query")
    if not Checkpoint.objects.filter(run_id=run_id, seq=query.checkpoint).exists():
        raise InputRefused(
            f"run {run_id} has no checkpoint {query.checkpoint}; GET /runs/{{id}}/checkpoints lists them.",
            path="checkpoint", place="query",
        )  # fmt: skip

"""Clocks over the API: what fired and why, and more time for a run or for one of its waits."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.bodies import refuse_far
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import ClockList, ClockQuery, ExtendRequest, ExtendWaitRequest, FiredClock, VerbDone
from durableops.api.verbs import done
from durableops.engine import commands, firings
from durableops.errors import RunNotFound

LARGEST_ID = 2**63 - 1

router = Router(tags=["clocks"])
of_runs = Router(tags=["verbs"])


@router.get(
    "", response={200: ClockList, **REFUSALS}, operation_id="list_clocks", summary="List clocks that fired",
    **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, asked: Query[ClockQuery]) -> ClockList:
    """Which clocks fired within the last hours, by cause and by whom they waited for; most first."""
    client = client_of(request)
    found = firings.by_cause([client.tenant.pk], hours=asked.hours)
    return ClockList(
        clocks=[
            FiredClock(
                cause=one.cause, clock=one.clock, phase=one.phase, whom=one.whom, times=one.times, runs=one.runs,
                newest_at=one.newest_at, advice=one.advice,
            )
            for one in found
        ]
    )  # fmt: skip


@of_runs.post(
    "/{uuid:run_id}/extend", response={200: VerbDone, **REFUSALS}, operation_id="extend_run",
    summary="Move a run's deadline", **asks(VERBS["extend"]),
)  # fmt: skip
def extend(request: HttpRequest, run_id: UUID, body: ExtendRequest) -> Status[VerbDone]:
    """Give an open run another deadline: the only thing that moves one. Answers the question whether to, if asked."""
    client = client_of(request)
    refuse_far(body.deadline_at, path="/deadline_at")
    return done(
        commands.extend_deadline(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, deadline_at=body.deadline_at
        )
    )


@of_runs.post(
    "/{uuid:run_id}/waits/{int:wait_id}/extend", response={200: VerbDone, **REFUSALS}, operation_id="extend_wait",
    summary="Move the end of a wait", **asks(VERBS["extend"]),
)  # fmt: skip
def extend_wait(request: HttpRequest, run_id: UUID, wait_id: int, body: ExtendWaitRequest) -> Status[VerbDone]:
    """Move the end of one of a run's open waits. The run's own deadline may still come first."""
    client = client_of(request)
    if wait_id > LARGEST_ID:
        raise RunNotFound(f"there is no wait {str(wait_id)[:20]}… here.")
    refuse_far(body.expires_at, path="/expires_at")
    return done(
        commands.extend_wait(
            wait_id, of_run=run_id, tenant=client.tenant, actor=client.actor, reason=body.reason,
            expires_at=body.expires_at,
        )
    )  # fmt: skip

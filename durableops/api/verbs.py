"""The operators' verbs on one run over the API, the same functions that the console and the command line call."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from durableops.access import VERBS
from durableops.api.auth import client_of
from durableops.api.bodies import refuse_far
from durableops.api.described import REFUSALS, asks
from durableops.api.schemas import BudgetRequest, CancelRequest, MigrateRequest, RetryRequest, VerbDone, VerbRequest
from durableops.engine import budgeting, commands, guard, reviewing
from durableops.engine.commands import Done
from runs.states import State

router = Router(tags=["verbs"])


def _verb[V: Callable[..., Status[VerbDone]]](name: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{uuid:run_id}}/{name}",
        response={200: VerbDone, 202: VerbDone, **REFUSALS},
        operation_id=f"{name}_run",
        summary=summary,
        **asks(VERBS[name], accepted=True),
    )
    return decorate


@_verb("cancel", "Cancel a run")
def cancel(request: HttpRequest, run_id: UUID, body: CancelRequest) -> Status[VerbDone]:
    """Cancel a run and everything below it. 202 while its worker still has to stop. A finished run is refused (409).

    `GET /runs/{id}/plans/cancel` tells what could be undone, and what stays open.
    """
    client = client_of(request)
    return done(commands.cancel(run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, done=body.done))


@_verb("pause", "Pause a run")
def pause(request: HttpRequest, run_id: UUID, body: VerbRequest) -> Status[VerbDone]:
    """Let nobody go on with a run. 202 while its worker still has to hand it back. Its deadlines go on."""
    client = client_of(request)
    return done(commands.pause(run_id, tenant=client.tenant, actor=client.actor, reason=body.reason))


@_verb("resume", "Resume a paused run")
def resume(request: HttpRequest, run_id: UUID, body: VerbRequest) -> Status[VerbDone]:
    """Let a paused run go on from where it is."""
    client = client_of(request)
    return done(commands.resume(run_id, tenant=client.tenant, actor=client.actor, reason=body.reason))


@_verb("retry", "Retry a run that ended badly")
def retry(request: HttpRequest, run_id: UUID, body: RetryRequest) -> Status[VerbDone]:
    """Reopen a failed, timed out or exhausted run at its last checkpoint. Committed steps do not run again.

    Where calls would be sent again, or would be in doubt, it needs the `plan_hash` of `GET /runs/{id}/plans/retry`.
    """
    client = client_of(request)
    refuse_far(body.deadline_at, path="/deadline_at")
    return done(
        commands.retry(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, deadline_at=body.deadline_at,
            budget=body.budget, plan_hash=body.plan_hash or guard.UNSEEN,
        )
    )  # fmt: skip


@_verb("migrate", "Migrate a run to a newer version")
def migrate(request: HttpRequest, run_id: UUID, body: MigrateRequest) -> Status[VerbDone]:
    """Bring a run that nobody has in hand to a newer version of its workflow, by its registered migrations.

    Where calls would be sent again, or would be in doubt, it needs the `plan_hash` of `GET /runs/{id}/plans/migrate`.
    """
    client = client_of(request)
    return done(
        reviewing.migrate(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, version=body.version,
            plan_hash=body.plan_hash or guard.UNSEEN,
        )
    )  # fmt: skip


@router.post(
    "/{uuid:run_id}/budget", response={200: VerbDone, **REFUSALS}, operation_id="add_budget_run",
    summary="Give a run more budget", **asks(VERBS["add_budget"]),
)  # fmt: skip
def add_budget(request: HttpRequest, run_id: UUID, body: BudgetRequest) -> Status[VerbDone]:
    """Raise what an open or an exhausted run may spend. An exhausted one goes on when it is retried."""
    client = client_of(request)
    return done(
        budgeting.add_budget(
            run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, amounts=dict(body.budget)
        )
    )


def done(what: Done) -> Status[VerbDone]:
    """The answer to a verb: 202 while the run's holder still has to act on it."""
    assert what.run_id is not None  # verbs on one run always name it
    shown = VerbDone(run=what.run_id, state=State(what.state), settled=what.settled, detail=what.message)
    return Status(200 if what.settled else 202, shown)

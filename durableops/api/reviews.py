"""The review desk over the API: which runs do not fit, in groups, and how each goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from django.db import connection
from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from durableops.access import VERBS, Permission
from durableops.api import review_schemas as shapes
from durableops.api import shaping
from durableops.api.auth import Client, client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.api.plans import Plan
from durableops.api.schemas import GuardedRequest, Payload, VerbDone, VerbRequest
from durableops.api.verbs import done
from durableops.authoring import registry
from durableops.checkpoints.upgrades import Upgraded
from durableops.engine import guard, migrating, reshaping, reviewing
from durableops.errors import MigrationRefused, NotPermitted, RunNotFound, WorkflowNotFound
from durableops.masking import mask_text
from runs.models import Checkpoint, Review, Run

_GROUPS = """
SELECT min(v.id), v.fingerprint, count(*), min(v.found_at), max(v.found_at) FROM runs_review v
WHERE v.tenant_id = %s AND v.closed_at IS NULL GROUP BY v.fingerprint HAVING min(v.id) > %s ORDER BY 1 LIMIT %s"""

router = Router(tags=["reviews"])
of_runs = Router(tags=["reviews"])


def _verb[V: Callable[..., Status[VerbDone]]](path: str, verb: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = of_runs.post(
        f"/{{uuid:run_id}}/{path}", response={200: VerbDone, 202: VerbDone, **REFUSALS},
        operation_id=f"{path.replace('-', '_')}_run", summary=summary, **asks(VERBS[verb], accepted=True),
    )  # fmt: skip
    return decorate


@router.get(
    "", response={200: shapes.ReviewGroups, **REFUSALS}, operation_id="list_reviews",
    summary="List what does not fit, in groups", **asks(Permission.VIEW),
)  # fmt: skip
def groups(request: HttpRequest, query: Annotated[shapes.ReviewQuery, Query()]) -> shapes.ReviewGroups:
    """Runs that a person has to decide about, those with the same incompatibility together, oldest first."""
    client = client_of(request)
    refuse_unknown(request, shapes.ReviewQuery)
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, [client.tenant.pk, query.after, query.limit + 1])
        found = cursor.fetchall()
    shown = found[: query.limit]
    first = Review.objects.select_related("plan", "target").in_bulk([row[0] for row in shown])
    return shapes.ReviewGroups(
        groups=[
            shapes.ReviewGroup(
                fingerprint=fingerprint, workflow=first[pk].workflow, code=first[pk].code, runs=runs, oldest=oldest,
                newest=newest, reason=mask_text(first[pk].reason), differences=first[pk].differences,
                version=first[pk].plan.version,
                target_version=target.version if (target := first[pk].target) else None,
            )
            for pk, fingerprint, runs, oldest, newest in shown if pk in first
        ],
        next=shown[-1][0] if len(found) > query.limit else None,
    )  # fmt: skip


@router.get(
    "/{fingerprint}", response={200: shapes.ReviewedRuns, **REFUSALS}, operation_id="list_reviews_alike",
    summary="List the runs of one group", **asks(Permission.VIEW),
)  # fmt: skip
def alike(request: HttpRequest, fingerprint: str, query: Annotated[shapes.ReviewQuery, Query()]) -> shapes.ReviewedRuns:
    """The open findings with one fingerprint, oldest first."""
    client = client_of(request)
    refuse_unknown(request, shapes.ReviewQuery)
    rows = Review.objects.filter(tenant=client.tenant, fingerprint=fingerprint[:100], closed_at=None)
    if not rows.exists():
        raise RunNotFound(f"there is no open finding {fingerprint[:40]!r} here.")
    found = list(rows.filter(pk__gt=query.after).select_related("run").order_by("pk")[: query.limit + 1])
    shown = found[: query.limit]
    return shapes.ReviewedRuns(
        runs=[shapes.ReviewedRun(**_facts(row)) for row in shown],
        next=shown[-1].pk if len(found) > query.limit else None,
    )


@of_runs.get(
    "/{uuid:run_id}/review", response={200: shapes.ReviewDetail, **REFUSALS}, operation_id="get_review",
    summary="Read what does not fit a run", **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, run_id: UUID) -> shapes.ReviewDetail:
    """The open finding about a run: both plans, the differences, and what its migration would make of it, with the
    `plan_hash` that `POST /runs/{id}/migrate` wants. Nothing is changed by looking."""
    client = client_of(request)
    run = _run(client, run_id)
    row = Review.objects.select_related("run", "plan", "target").filter(run=run, closed_at=None).first()
    if row is None:
        raise RunNotFound(f"there is no open finding about run {run_id}.", run=str(run_id))
    becomes, why_not = _migration(client, run)
    return shapes.ReviewDetail(
        **_facts(row), fingerprint=row.fingerprint, code=row.code, reason=mask_text(row.reason),
        differences=row.differences, recorded_plan=row.plan.plan, target_plan=row.target.plan if row.target else None,
        state_before=_state(client, run), becomes=becomes, why_not=why_not,
    )  # fmt: skip


@_verb("revert", "revert", "Take a migration, an edit or a move back")
def revert(request: HttpRequest, run_id: UUID, body: VerbRequest) -> Status[VerbDone]:
    """Take it back, as long as no step, page or call was committed after it."""
    return _done(request, reviewing.revert, run_id, body)


@_verb("pin", "pin", "Keep a run on its version")
def pin(request: HttpRequest, run_id: UUID, body: GuardedRequest) -> Status[VerbDone]:
    """Keep a run on its version: only workers that have this very plan move it. A parked one goes on there; where that
    would send something again it needs the `plan_hash` of `GET /runs/{id}/plans/pin`."""
    return _done(request, reviewing.pin, run_id, body, plan_hash=body.plan_hash or guard.UNSEEN)


@_verb("unpin", "unpin", "Let newer workers take a run over again")
def unpin(request: HttpRequest, run_id: UUID, body: VerbRequest) -> Status[VerbDone]:
    """Take a pin away."""
    return _done(request, reviewing.unpin, run_id, body)


@_verb("reject", "reject", "End a run that does not fit")
def reject(request: HttpRequest, run_id: UUID, body: shapes.RejectRequest) -> Status[VerbDone]:
    """Cancel a run in review. `GET /runs/{id}/plans/cancel` tells what could be undone, and what stays open."""
    return _done(request, reviewing.reject, run_id, body, done=body.done)


@_verb("ask-second", "ask_second", "Ask for a second reviewer")
def ask_second(request: HttpRequest, run_id: UUID, body: VerbRequest) -> Status[VerbDone]:
    """Ask for a second reviewer: whoever asks does not decide about this run any more."""
    return _done(request, reviewing.ask_second, run_id, body)


@_verb("edit", "edit", "Let a run go on with another state")
def edit(request: HttpRequest, run_id: UUID, body: shapes.EditRequest) -> Status[VerbDone]:
    """Let a run go on under a version with this state, and at this step. `POST /runs/{id}/edit/preview` shows what it
    would be, with the `plan_hash` of it."""
    _refuse_unseen_state(client_of(request), body.state)
    return _done(
        request, reshaping.edit, run_id, body, state=body.state, step_id=body.step, version=body.version,
        finding=body.finding, plan_hash=body.plan_hash or guard.UNSEEN,
    )  # fmt: skip


@_verb("move", "edit", "Let a run go on at another step")
def move(request: HttpRequest, run_id: UUID, body: shapes.MoveRequest) -> Status[VerbDone]:
    """Move a run to a step that is not committed; its state stays. The preview is that of an edit."""
    return _done(
        request, reshaping.edit, run_id, body, step_id=body.step, version=body.version, finding=body.finding,
        plan_hash=body.plan_hash or guard.UNSEEN,
    )  # fmt: skip


@of_runs.post(
    "/{uuid:run_id}/edit/preview", response={200: shapes.Becomes, **REFUSALS}, operation_id="preview_edit",
    summary="Look at what an edit or a move would come to", **asks(VERBS["edit"]),
)  # fmt: skip
def preview_edit(request: HttpRequest, run_id: UUID, body: shapes.EditPreviewRequest) -> shapes.Becomes:
    """What the run would be with this state and at this step. Nothing is changed by looking."""
    client = client_of(request)
    _refuse_unseen_state(client, body.state)
    run = _run(client, run_id)
    with connection.cursor() as cursor:
        found = reshaping.preview(cursor, run, state=body.state, step_id=body.step, version=body.version)
    return _becomes(client, run, found.becomes, found.version, found.plan)


def _done(
    request: HttpRequest, verb: Callable[..., Any], run_id: UUID, body: VerbRequest, **more: Any
) -> Status[VerbDone]:
    client = client_of(request)
    return done(verb(run_id, tenant=client.tenant, actor=client.actor, reason=body.reason, **more))


def _refuse_unseen_state(client: Client, state: object) -> None:
    if state is not None and not client.sees_payloads:
        needs = Permission.PAYLOADS.value
        raise NotPermitted(f"an edited state needs the scope {needs}. Nothing was changed.", needs=needs)


def _run(client: Client, run_id: UUID) -> Run:
    run = client.runs().select_related("plan", "tenant").filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    return run


def _migration(client: Client, run: Run) -> tuple[shapes.Becomes | None, str]:
    try:
        target = registry.workflow(run.workflow, None)
        if target.version == run.plan.version:
            return None, f"the code here has version {target.version}, too."
        with connection.cursor() as cursor:
            found = migrating.preview(cursor, run.pk, target)
            about = guard.becoming(run.pk, "migrate", target.version, found)
            plan = guard.plan(cursor, "migrate", run.pk, about=about)
    except (MigrationRefused, WorkflowNotFound) as why:
        return None, why.detail
    return _becomes(client, run, found, target.version, plan), ""


def _becomes(client: Client, run: Run, found: Upgraded, version: int, plan: guard.Plan) -> shapes.Becomes:
    return shapes.Becomes(
        version=version, step=found.step_id, waits_given_up=sum(name is None for name in found.waits.values()),
        state=shaping.payload(found.state, checkpoint=run.head_seq, sight=client.sees_payloads),
        functions=[str(one["name"]) for one in found.functions], plan=Plan(**plan.as_json()),
    )  # fmt: skip


def _state(client: Client, run: Run) -> Payload:
    text = Checkpoint.objects.filter(run=run, seq=run.state_seq).values_list("state", flat=True).first() or "{}"
    return shaping.payload(text, checkpoint=run.state_seq, sight=client.sees_payloads)


def _facts(row: Review) -> dict[str, Any]:
    return {
        "id": row.pk, "run": row.run_id, "state": row.run.state, "step": row.run.step_id, "checkpoint": row.seq,
        "found_at": row.found_at, "claimed_by": row.claimed_by, "second_asked_by": row.second_asked_by,
    }  # fmt: skip

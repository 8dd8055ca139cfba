"""Bulk actions over the API: one verb for many runs, captured at a preview, with what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, Field

from durableops.access import VERBS, Permission
from durableops.api import reading
from durableops.api.auth import Client, client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import LARGEST_ID, refuse_unknown
from durableops.api.schemas import Instant, Key, PlanHash, Request, VerbRequest
from durableops.engine import guard
from durableops.engine import reviewing as reviewing  # its bulk verb is known by being imported
from durableops.engine.bulk import capture, control
from durableops.engine.bulk import reading as outcomes
from durableops.engine.bulk.capture import Selection
from durableops.engine.bulk.verbs import verb
from durableops.errors import BulkNotFound, InputRefused, NotPermitted
from runs import models
from runs.states import State

LARGEST_SEQ = 2**31 - 1
MOST_GIVEN = 1000
WINDOW = 200_000
"""Runs that are looked at for conditions that no index answers."""

_ALIKE = """
SELECT v.run_id AS id FROM runs_review v
WHERE v.tenant_id = %(of)s AND v.fingerprint = %(fingerprint)s AND v.closed_at IS NULL ORDER BY v.id DESC"""

router = Router(tags=["bulk"])


class RunSelection(Request):
    """Runs by what they are; all must hold. Nothing at all is every run."""

    state: list[Annotated[State, Field(strict=False)]] = Field(default_factory=list, description="Any of these.")
    workflow: str = Field("", max_length=100)
    labels: dict[Key, Key] = Field(default_factory=dict, max_length=5)
    since: Instant | None = None
    finding: str = Field("", max_length=32, description="Those with this open `fingerprint` of a review; alone.")


class PreviewRequest(Request):
    verb: Literal["pause", "resume", "retry", "cancel", "migrate"]
    runs: list[Annotated[UUID, Field(strict=False)]] = Field(
        default_factory=list, max_length=MOST_GIVEN, description="These runs; else those of `filter`."
    )
    filter: RunSelection | None = None
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="For `cancel`: `done`, what becomes of what they did. For `migrate`: `workflow`, `version`, and "
        "`finding` if only runs that still have it are meant.",
    )


class StartBulkRequest(VerbRequest):
    plan_hash: PlanHash | None = None


class Outcomes(BaseModel):
    pending: int
    done: int
    refused: int
    failed: int


class Met(BaseModel):
    """So many of its runs in one state, as things are now."""

    state: str
    paused: bool
    fits: bool = Field(description="Whether the verb would be done.")
    runs: int


class Bulk(BaseModel):
    """One verb for many runs. Its runs were captured once: no later run joins them."""

    id: int
    verb: str
    arguments: dict[str, Any]
    selection: str = Field(description="How its runs were chosen.")
    runs: int
    state: Literal["preview", "running", "paused", "aborted", "done"]
    actor: str
    reason: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    outcomes: Outcomes
    plan: dict[str, Any] = Field(description="What it would send again, as it was captured; empty for verbs without.")
    plan_hash: str = Field(description="To be sent with `start`; empty for verbs without a plan.")


class BulkPreview(Bulk):
    meets: list[Met] = Field(description="What it would meet if it began now.")


class BulkList(BaseModel):
    bulks: list[Bulk]
    next: int | None = Field(description="Give it as `before` for the next page; null at the end.")


class Result(BaseModel):
    """What came of one run."""

    seq: int
    run: UUID
    state: Literal["pending", "done", "refused", "failed"]
    message: str
    at: datetime | None


class ResultPage(BaseModel):
    results: list[Result]
    next: int | None = Field(description="Give it as `after` for the next page; null at the end.")


class BulkQuery(BaseModel):
    """Which page of the bulk actions."""

    before: int = Field(LARGEST_ID, ge=1, le=LARGEST_ID, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=100)


class ResultQuery(BaseModel):
    """Which page of a bulk action's results."""

    state: Literal["", "pending", "done", "refused", "failed"] = ""
    after: int = Field(0, ge=0, le=LARGEST_SEQ, description="`next` of the page before.")
    limit: int = Field(100, ge=1, le=500)


@router.post(
    "", response={201: BulkPreview, **REFUSALS}, operation_id="preview_bulk", summary="Preview a bulk action",
    **asks(Permission.OPERATE),
)  # fmt: skip
def preview(request: HttpRequest, body: PreviewRequest) -> Status[BulkPreview]:
    """Capture the runs of a selection, and what the verb would meet and send again. Nothing is done to any of them; a
    preview that nobody starts within a day is forgotten."""
    client = client_of(request)
    known = verb(body.verb)
    _require(client, known.name)
    made = capture.preview(
        known, _selection(client, body), tenant=client.tenant, actor=client.actor, arguments=body.arguments
    )
    met = [Met(state=one.state, paused=one.paused, fits=one.fits, runs=one.runs) for one in outcomes.meets(made, known)]
    return Status(201, BulkPreview(**_facts(made), meets=met))


@router.get(
    "", response={200: BulkList, **REFUSALS}, operation_id="list_bulks", summary="List bulk actions, newest first",
    **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, query: Annotated[BulkQuery, Query()]) -> BulkList:
    """Bulk actions, newest first, previews included."""
    refuse_unknown(request, BulkQuery)
    rows = models.Bulk.objects.filter(tenant=client_of(request).tenant, pk__lt=query.before).order_by("-pk")
    found = list(rows[: query.limit + 1])
    shown = found[: query.limit]
    return BulkList(
        bulks=[Bulk(**_facts(one)) for one in shown], next=shown[-1].pk if len(found) > query.limit else None
    )


@router.get(
    "/{int:bulk_id}", response={200: Bulk, **REFUSALS}, operation_id="get_bulk", summary="Read how far one is",
    **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, bulk_id: int) -> Bulk:
    """One bulk action, with how many of its runs have which outcome."""
    return Bulk(**_facts(_find(client_of(request), bulk_id)))


@router.get(
    "/{int:bulk_id}/results", response={200: ResultPage, **REFUSALS}, operation_id="list_bulk_results",
    summary="Read what came of each run", **asks(Permission.VIEW),
)  # fmt: skip
def results(request: HttpRequest, bulk_id: int, query: Annotated[ResultQuery, Query()]) -> ResultPage:
    """What came of each run, in the order in which they were captured; of one outcome with `state`."""
    refuse_unknown(request, ResultQuery)
    bulk = _find(client_of(request), bulk_id)
    found = outcomes.results(bulk, state=query.state, after=query.after, limit=query.limit)
    rows = [
        Result(seq=row.item.seq, run=row.item.run_id, state=row.item.state, message=row.item.message, at=row.item.at)
        for row in found.rows
    ]
    return ResultPage(results=rows, next=found.next)


def _control[V: Callable[..., Bulk]](path: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:bulk_id}}/{path}", response={200: Bulk, **REFUSALS}, operation_id=f"{path}_bulk", summary=summary,
        **asks(Permission.OPERATE),
    )  # fmt: skip
    return decorate


@_control("start", "Start a previewed bulk action")
def start(request: HttpRequest, bulk_id: int, body: StartBulkRequest) -> Bulk:
    """Begin to do it: exactly the runs that were captured, one at a time, each once. Refused (409) with the plan as it
    is now if something that it would send again was not shown or has changed."""
    return _controlled(request, bulk_id, control.start, body, plan_hash=body.plan_hash or guard.UNSEEN)


@_control("pause", "Pause a bulk action")
def pause(request: HttpRequest, bulk_id: int, body: VerbRequest) -> Bulk:
    """Pause it: no further run is touched once this has answered."""
    return _controlled(request, bulk_id, control.hold, body)


@_control("resume", "Let a bulk action go on")
def resume(request: HttpRequest, bulk_id: int, body: VerbRequest) -> Bulk:
    """Let a paused one go on with the runs that are left."""
    return _controlled(request, bulk_id, control.go_on, body)


@_control("abort", "Abort a bulk action")
def abort(request: HttpRequest, bulk_id: int, body: VerbRequest) -> Bulk:
    """End it: the runs that are left stay as they are."""
    return _controlled(request, bulk_id, control.abort, body)


def _controlled(
    request: HttpRequest, bulk_id: int, do: Callable[..., models.Bulk], body: VerbRequest, **more: str
) -> Bulk:
    client = client_of(request)
    bulk = _find(client, bulk_id)
    _require(client, bulk.verb)
    return Bulk(**_facts(do(bulk.pk, tenant=client.tenant, actor=client.actor, reason=body.reason, **more)))


def _selection(client: Client, body: PreviewRequest) -> Selection:
    """The chosen runs. Raises InputRefused unless they are chosen in one way."""
    if bool(body.runs) == (body.filter is not None):
        raise InputRefused("choose the runs by `runs` or by `filter`, one of them.", path="/runs", place="body")
    if body.filter is None:
        return Selection(words=f"{len(body.runs)} named", ids=body.runs)
    asked = body.filter
    if asked.finding:
        if asked.model_fields_set - {"finding"}:
            raise InputRefused("`finding` stands alone in a filter.", path="/filter", place="body")
        of = {"of": client.tenant.pk, "fingerprint": asked.finding}
        return Selection(words=f"all in review alike: {asked.finding[:8]}", sql=_ALIKE, params=of)
    wanted = reading.RunFilter(
        states=[state.value for state in asked.state], workflow=asked.workflow, labels=asked.labels, since=asked.since
    )
    found = reading.ids_of(client, wanted, most=capture.MOST_RUNS + 1, window=WINDOW)
    return Selection(words=_words(asked), ids=found)


def _words(asked: RunSelection) -> str:
    said = [f"state:{state.value}" for state in asked.state]
    said += [f"workflow:{asked.workflow}"] if asked.workflow else []
    said += [f"label:{name}={value}" for name, value in asked.labels.items()]
    said += [f"since:{asked.since.isoformat()}"] if asked.since else []
    return " ".join(said) or "every run"


def _require(client: Client, name: str) -> None:
    """Whoever may do a verb to one run may do it to many; one that people began may be of another kind."""
    needed = VERBS.get(name)
    if needed is None or needed not in client.permissions:
        told = needed.value if needed is not None else name
        raise NotPermitted(f"this token lacks the scope {told}. Nothing was changed.", needs=told)


def _find(client: Client, bulk_id: int) -> models.Bulk:
    if bulk_id > LARGEST_ID:
        raise BulkNotFound(f"there is no bulk action {str(bulk_id)[:20]}… here.")
    return control.find(bulk_id, tenant=client.tenant)


def _facts(bulk: models.Bulk) -> dict[str, Any]:
    counted = outcomes.counts(bulk)
    plan: Mapping[str, Any] = bulk.plan or {}
    return {
        "id": bulk.pk, "verb": bulk.verb, "arguments": bulk.arguments, "selection": bulk.selection.get("words", ""),
        "runs": bulk.runs, "state": bulk.state, "actor": bulk.actor, "reason": bulk.reason,
        "created_at": bulk.created_at, "started_at": bulk.started_at, "finished_at": bulk.finished_at,
        "outcomes": Outcomes(
            pending=counted.pending, done=counted.done, refused=counted.refused, failed=counted.failed
        ),
        "plan": {**plan, "plan_hash": bulk.plan_hash} if plan else {}, "plan_hash": bulk.plan_hash,
    }  # fmt: skip

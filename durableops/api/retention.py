"""Retention over the API: how long what is kept, what would go and why the rest stays, legal holds, erasures."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from durableops import clock
from durableops.access import VERBS, Permission
from durableops.api.auth import client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import LARGEST_ID, refuse_unknown
from durableops.api.retention_schemas import (
    Change,
    Erasure,
    ErasurePage,
    ErasureRequest,
    Hold,
    HoldPage,
    HoldRequest,
    HoldsQuery,
    PageQuery,
    Preview,
    PreviewRequest,
    Rehearsal,
    Rule,
    RuleRequest,
    RulesQuery,
    Staying,
    WantedRule,
    Window,
    Windows,
)
from durableops.api.schemas import VerbRequest
from durableops.engine.retention import erasures, holds, rules
from durableops.engine.retention.erasures import ErasureNotFound
from durableops.errors import HoldNotFound, InputRefused
from durableops.upkeep.retention import preview, rehearsal
from durableops.upkeep.retention.preview import PreviewNotFound
from runs import models
from runs.retention.classes import in_words

router = Router(tags=["retention"])


@router.get(
    "/rules", response={200: Windows, **REFUSALS}, operation_id="list_rules", summary="Read how long what is kept",
    **asks(Permission.VIEW),
)  # fmt: skip
def windows(request: HttpRequest, query: Annotated[RulesQuery, Query()]) -> Windows:
    """How long each class of a workflow of this tenant is kept, and by which rule."""
    client = client_of(request)
    refuse_unknown(request, RulesQuery)
    found = rules.windows(client.tenant, query.workflow)
    return Windows(
        workflow=query.workflow, policy=rules.version(),
        windows=[Window(subject=one.subject, seconds=one.seconds, rule=one.rule) for one in found.values()],
    )  # fmt: skip


@router.post(
    "/rules", response={201: Rule, **REFUSALS}, operation_id="set_rule", summary="Say how long something is kept",
    **asks(VERBS["set_rule"]),
)  # fmt: skip
def set_rule(request: HttpRequest, body: RuleRequest) -> Status[Rule]:
    """Set a rule for this tenant, or for one workflow of it. Runs that it concerns are looked at again."""
    client = client_of(request)
    made = rules.set_rule(
        body.subject, keeps=body.keeps, seconds=body.seconds, tenant=client.tenant, workflow=body.workflow,
        actor=client.actor, reason=body.reason,
    )  # fmt: skip
    return Status(201, Rule.model_validate(made, from_attributes=True))


@router.post(
    "/rules/rehearse", response={200: Rehearsal, **REFUSALS}, operation_id="rehearse_rule",
    summary="Ask what a rule would change", **asks(VERBS["set_rule"]),
)  # fmt: skip
def rehearse(request: HttpRequest, body: WantedRule) -> Rehearsal:
    """What setting such a rule would do to what is there today. Nothing is set."""
    client = client_of(request)
    seen = rehearsal.rehearse(
        body.subject, keeps=body.keeps, seconds=body.seconds, tenant=client.tenant, workflow=body.workflow
    )
    return Rehearsal(
        runs=seen.runs, complete=seen.complete,
        changes=[Change.model_validate(one, from_attributes=True) for one in seen.changes],
    )  # fmt: skip


@router.post(
    "/previews", response={201: Preview, **REFUSALS}, operation_id="preview_retention",
    summary="Look at what would go", **asks(VERBS["preview_retention"]),
)  # fmt: skip
def look(request: HttpRequest, body: PreviewRequest) -> Status[Preview]:
    """What of this tenant would go now, what stays and why. Nothing goes by looking; upkeep removes it by itself."""
    client = client_of(request)
    seen = preview.look(rehearsal.OfRequest(), clock.db_now(), tenant=client.tenant, most=body.most)
    return Status(201, _preview(preview.store(seen, tenant=client.tenant, by=client.actor)))


@router.get(
    "/previews/{int:preview_id}", response={200: Preview, **REFUSALS}, operation_id="get_preview",
    summary="Read a preview", **asks(Permission.VIEW),
)  # fmt: skip
def seen(request: HttpRequest, preview_id: int) -> Preview:
    """One preview as it was made."""
    found = _mine(request, models.RetentionPreview.objects.all(), preview_id)
    if found is None:
        raise PreviewNotFound(f"there is no preview {str(preview_id)[:20]} here.")
    return _preview(found)


@router.get(
    "/holds", response={200: HoldPage, **REFUSALS}, operation_id="list_holds", summary="List legal holds",
    **asks(Permission.VIEW),
)  # fmt: skip
def list_holds(request: HttpRequest, query: Annotated[HoldsQuery, Query()]) -> HoldPage:
    """Legal holds of this tenant, newest first: those that stand, or those that were lifted."""
    client = client_of(request)
    refuse_unknown(request, HoldsQuery)
    rows = models.LegalHold.objects.filter(tenant=client.tenant, lifted_at__isnull=query.state == "standing")
    shown, following = _page(rows, query)
    return HoldPage(holds=[_hold(row) for row in shown], next=following)


@router.post(
    "/holds", response={201: Hold, **REFUSALS}, operation_id="place_hold", summary="Place a legal hold",
    **asks(VERBS["place_hold"]),
)  # fmt: skip
def place(request: HttpRequest, body: HoldRequest) -> Status[Hold]:
    """Hold a run, whatever carries a label, or the whole tenant: nothing of it goes while the hold stands."""
    client = client_of(request)
    if (body.run is not None) + (body.label is not None) + body.everything != 1:
        raise InputRefused("say what is to be held: run, label, or everything; one of them.")
    made = holds.place(
        tenant=client.tenant, run_id=body.run, label=body.label or "", value=body.value if body.label else "",
        actor=client.actor, reason=body.reason,
    )  # fmt: skip
    made.refresh_from_db()
    return Status(201, _hold(made))


@router.post(
    "/holds/{int:hold_id}/lift", response={200: Hold, **REFUSALS}, operation_id="lift_hold",
    summary="Lift a legal hold", **asks(VERBS["lift_hold"]),
)  # fmt: skip
def lift(request: HttpRequest, hold_id: int, body: VerbRequest) -> Hold:
    """Lift one. What is due goes with the cleaner's next looks."""
    client = client_of(request)
    if hold_id > LARGEST_ID:
        raise HoldNotFound(f"there is no legal hold {str(hold_id)[:20]}… here.")
    return _hold(holds.lift(hold_id, tenant=client.tenant, actor=client.actor, reason=body.reason))


@router.get(
    "/erasures", response={200: ErasurePage, **REFUSALS}, operation_id="list_erasures", summary="List erasures",
    **asks(Permission.VIEW),
)  # fmt: skip
def list_erasures(request: HttpRequest, query: Annotated[PageQuery, Query()]) -> ErasurePage:
    """Requests for erasure of this tenant, newest first."""
    client = client_of(request)
    refuse_unknown(request, PageQuery)
    shown, following = _page(models.Erasure.objects.filter(tenant=client.tenant), query)
    return ErasurePage(erasures=[_erasure(row) for row in shown], next=following)


@router.post(
    "/erasures", response={201: Erasure, **REFUSALS}, operation_id="request_erasure",
    summary="Ask that data be erased", **asks(VERBS["erase"]),
)  # fmt: skip
def erase(request: HttpRequest, body: ErasureRequest) -> Status[Erasure]:
    """Ask that what carries a label, or everything of this tenant, be erased. Upkeep does it; it does not come back."""
    client = client_of(request)
    if (body.label is not None) + body.everything != 1:
        raise InputRefused("say what is to be erased: label, or everything; one of them.")
    made = erasures.request(
        tenant=client.tenant, label=body.label or "", value=body.value if body.label else "", actor=client.actor,
        reason=body.reason,
    )  # fmt: skip
    made.refresh_from_db()
    return Status(201, _erasure(made))


@router.get(
    "/erasures/{int:erasure_id}", response={200: Erasure, **REFUSALS}, operation_id="get_erasure",
    summary="Read what became of an erasure", **asks(Permission.VIEW),
)  # fmt: skip
def erasure(request: HttpRequest, erasure_id: int) -> Erasure:
    """What of it was erased, what had to stay and why."""
    found = _mine(request, models.Erasure.objects.all(), erasure_id)
    if found is None:
        raise ErasureNotFound(f"there is no erasure {str(erasure_id)[:20]} here.")
    return _erasure(found)


def _mine(request: HttpRequest, rows: QuerySet[Any], number: int) -> Any:
    """One row of the token's tenant, or None."""
    return None if number > LARGEST_ID else rows.filter(pk=number, tenant=client_of(request).tenant).first()


def _page(rows: QuerySet[Any], query: PageQuery) -> tuple[list[Any], int | None]:
    if query.before is not None:
        rows = rows.filter(pk__lt=query.before)
    found = list(rows.order_by("-pk")[: query.limit + 1])
    shown = found[: query.limit]
    return shown, shown[-1].pk if len(found) > query.limit else None


def _hold(row: models.LegalHold) -> Hold:
    return Hold(
        id=row.pk, scope=row.scope, run=row.run_id, label=row.label, value=row.value, placed_by=row.placed_by,
        placed_at=row.placed_at, reason=row.reason, lifted_by=row.lifted_by, lifted_at=row.lifted_at,
        lift_reason=row.lift_reason,
    )  # fmt: skip


def _erasure(row: models.Erasure) -> Erasure:
    return Erasure(
        id=row.pk, label=row.label, value=row.value, everything=not row.label, requested_by=row.requested_by,
        requested_at=row.requested_at, reason=row.reason, finished_at=row.finished_at, erased=row.erased,
        stayed=row.stayed,
    )  # fmt: skip


def _preview(row: models.RetentionPreview) -> Preview:
    told = row.figures
    stays = [Staying(**one, words=in_words(one["why"])) for one in told["stays"]]
    return Preview(
        id=row.pk, as_of=row.as_of, made_by=row.made_by, policy=row.rule, runs=told["runs"],
        complete=told["complete"], rows=told["rows"], bytes=told["bytes"], goes=told["goes"], stays=stays,
    )  # fmt: skip

"""Effects in doubt over the API: which there are, what may be said of each, and saying it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from durableops.access import VERBS, Permission
from durableops.api.auth import Client, client_of
from durableops.api.described import REFUSALS, asks
from durableops.api.doubt_schemas import (
    Doubt,
    DoubtDetail,
    DoubtPage,
    DoubtQuery,
    DoubtVerb,
    SettleRequest,
    SettlingChoice,
)
from durableops.api.paging import LARGEST_ID, refuse_unknown
from durableops.api.plans import PlannedCalls
from durableops.api.schemas import RunError, VerbDone, VerbRequest
from durableops.api.verbs import done
from durableops.engine import choices, doubts, guard, settling
from durableops.engine.settlements import Settlement
from durableops.errors import DoubtNotFound
from durableops.masking import mask, mask_text
from runs import models

router = Router(tags=["doubts"])


def _verb[V: Callable[..., Status[VerbDone]]](path: str, verb: str, name: str, summary: str) -> Callable[[V], V]:
    decorate: Callable[[V], V] = router.post(
        f"/{{int:doubt_id}}/{path}",
        response={200: VerbDone, **REFUSALS},
        operation_id=name,
        summary=summary,
        **asks(VERBS[verb]),
    )
    return decorate


@router.get(
    "", response={200: DoubtPage, **REFUSALS}, operation_id="list_doubts", summary="List what is in doubt",
    **asks(Permission.VIEW),
)  # fmt: skip
def listed(request: HttpRequest, query: Annotated[DoubtQuery, Query()]) -> DoubtPage:
    """Doubts, oldest first: those that are open, also of runs that ended, or those that were settled."""
    client = client_of(request)
    refuse_unknown(request, DoubtQuery)
    rows = models.Doubt.objects.filter(
        tenant=client.tenant, settled_at__isnull=query.state == "open", pk__gt=query.after
    )
    found = list(rows.select_related("effect").defer("effect__result").order_by("pk")[: query.limit + 1])
    shown = found[: query.limit]
    return DoubtPage(
        doubts=[_doubt(row, client) for row in shown], next=shown[-1].pk if len(found) > query.limit else None
    )


@router.get(
    "/{int:doubt_id}", response={200: DoubtDetail, **REFUSALS}, operation_id="get_doubt",
    summary="Read one doubt and what may be said of it", **asks(Permission.VIEW),
)  # fmt: skip
def detail(request: HttpRequest, doubt_id: int) -> DoubtDetail:
    """One doubt, what each answer to it would do, and why one is not offered just now."""
    client = client_of(request)
    row = models.Doubt.objects.select_related("effect", "run").filter(pk=_known(doubt_id), tenant=client.tenant).first()
    if row is None:
        raise DoubtNotFound(f"there is no doubt {doubt_id} here.")
    found = choices.choices(row, row.run)
    offered = [
        SettlingChoice(
            how=one.how, offered=one.is_offered, why_not=one.why_not, means=list(one.means),
            calls=[PlannedCalls(**line.as_json()) for line in one.plan.lines], harmless=one.plan.is_harmless,
        )
        for one in found.offered
    ]  # fmt: skip
    return DoubtDetail(**_doubt(row, client).model_dump(), choices=offered, plan_hash=found.plan_hash)


@_verb("settle", "settle", "settle_doubt", "Say what became of an effect in doubt")
def settle(request: HttpRequest, doubt_id: int, body: SettleRequest) -> Status[VerbDone]:
    """Settle a doubt, once. Refused (409) if it was settled, if `did_not` cannot be known yet, or if the facts behind
    `plan_hash` have changed. `did_not` needs it where the call would be sent again."""
    client = client_of(request)
    said = Settlement(
        how=body.how, downstream_id=body.downstream_id, evidence=body.evidence, result=body.result,
        has_result="result" in body.model_fields_set,
    )  # fmt: skip
    return done(
        settling.settle(
            _known(doubt_id), tenant=client.tenant, actor=client.actor, reason=body.reason, settlement=said,
            plan_hash=body.plan_hash or guard.UNSEEN,
        )
    )  # fmt: skip


@_verb("release", "release_system", "release_system_of_doubt", "Let the queue of its system go on")
def release(request: HttpRequest, doubt_id: int, body: VerbRequest) -> Status[VerbDone]:
    """Let the queue of a legacy system go on although this call is in doubt there. The doubt stays open."""
    return _done(request, doubt_id, settling.release, reason=body.reason)


@_verb("claim", "claim_doubt", "claim_doubt", "Say that you look into it")
def claim(request: HttpRequest, doubt_id: int, body: DoubtVerb) -> Status[VerbDone]:
    """Note who looks into a doubt. It keeps nobody from settling it."""
    return _done(request, doubt_id, doubts.claim, reason=body.reason)


@_verb("unclaim", "unclaim_doubt", "unclaim_doubt", "Say that nobody looks into it any more")
def unclaim(request: HttpRequest, doubt_id: int, body: DoubtVerb) -> Status[VerbDone]:
    """Note that nobody looks into a doubt any more."""
    return _done(request, doubt_id, doubts.unclaim, reason=body.reason)


@_verb("probe", "probe_doubt", "probe_doubt", "Have its tool's probe asked now")
def probe(request: HttpRequest, doubt_id: int, body: DoubtVerb) -> Status[VerbDone]:
    """Have the tool's probe asked now. Refused (409) where there is none, or while the run is not in doubt."""
    return _done(request, doubt_id, doubts.ask_probe, reason=body.reason)


def _done(request: HttpRequest, doubt_id: int, verb: Callable[..., Any], *, reason: str) -> Status[VerbDone]:
    client = client_of(request)
    return done(verb(_known(doubt_id), tenant=client.tenant, actor=client.actor, reason=reason))


def _known(doubt_id: int) -> int:
    if doubt_id > LARGEST_ID:
        raise DoubtNotFound(f"there is no doubt {str(doubt_id)[:20]}… here.")
    return doubt_id


def _doubt(row: models.Doubt, client: Client) -> Doubt:
    effect = row.effect
    failed = RunError(kind=row.cause, message=mask_text(row.why), fingerprint="")
    return Doubt(
        id=row.pk, run=row.run_id, effect=effect.pk, step=effect.step_id, tool=effect.tool, safety=effect.safety,
        resource=effect.resource, downstream_key=effect.key, effect_state=effect.state, error=failed, since=row.since,
        reminded_at=row.reminded_at, escalated_at=row.escalated_at, probe_at=row.probe_at,
        probe_attempts=row.probe_attempts, probe_said=mask_text(row.probe_said), claimed_by=row.claimed_by,
        holds_system=effect.system if effect.holds_system else "", quiet_after=effect.quiet_after,
        settled_at=row.settled_at, settled_as=row.settled_as, settled_by=row.settled_by,
        downstream_id=row.downstream_id, evidence=mask_text(row.evidence),
        request=mask(effect.request_summary) if client.sees_payloads else None,
        response=mask(effect.response_summary) if client.sees_payloads and effect.response_summary else None,
    )  # fmt: skip

"""What of a run is kept, over the API: how much of each class, until when, and what holds it."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest
from ninja import Router

from durableops.access import Permission
from durableops.api.auth import client_of, no_such_run
from durableops.api.described import REFUSALS, asks
from durableops.api.paging import refuse_unknown
from durableops.api.retention_schemas import Holder, KeptClass, NoQuery, RunRetention
from durableops.engine.retention import kept, rules
from runs.models import LegalHold, Run
from runs.retention.classes import in_words

HOLDS_SHOWN = 100

router = Router(tags=["retention"])


@router.get(
    "/{uuid:run_id}/retention", response={200: RunRetention, **REFUSALS}, operation_id="get_run_retention",
    summary="Read what of a run is kept, until when and why", **asks(Permission.VIEW),
)  # fmt: skip
def of_run(request: HttpRequest, run_id: UUID) -> RunRetention:
    """Each class of the run's data in the order in which they go: how much there is, when it goes, what holds it.

    Asked of the same functions as the cleaner asks: what this says holds until something happens to the run, its
    family, its effects, or to the rules.
    """
    client = client_of(request)
    refuse_unknown(request, NoQuery)
    run = client.runs().filter(pk=run_id).first()
    if run is None:
        raise no_such_run(run_id)
    found = kept.of_run(run)
    return RunRetention(
        run=run.pk, finished_at=run.finished_at, policy=rules.version(), rows=sum(one.rows for one in found),
        bytes=sum(one.bytes for one in found), state_bytes=run.state_bytes, legal_holds=_holds(run),
        classes=[
            KeptClass(
                data_class=one.data_class, rows=one.rows, bytes=one.bytes, seconds=one.seconds, rule=one.rule,
                due_at=one.due_at, goes_at=one.goes_at, gone_at=one.gone_at, never=one.never,
                held_by=[Holder(why=holder, words=in_words(holder)) for holder in one.held],
            )
            for one in found
        ],
    )  # fmt: skip


def _holds(run: Run) -> list[int]:
    """Numbers of the legal holds that stand on it, on a label of it, or on its tenant."""
    of_labels = Q(pk__in=[])
    for label, value in run.labels.items():
        of_labels |= Q(scope="label", label=label, value=value)
    standing = LegalHold.objects.filter(tenant=run.tenant_id, lifted_at=None)
    mine = standing.filter(of_labels | Q(scope="tenant") | Q(scope="run", run_id=run.pk)).order_by("pk")
    return list(mine.values_list("pk", flat=True)[:HOLDS_SHOWN])

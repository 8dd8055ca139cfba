"""What people do in the drill: they set its rules, place and lift legal holds, and settle at the end what is open."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from durableops.authoring import registry
from durableops.engine.plans import plan_id
from durableops.engine.retention import holds, rules
from durableops.upkeep.drills.company import ACTOR, cancel_all
from examples.keeping.cells import DAYS, REOPEN_DAYS
from examples.keeping.making import HELD, Maker
from examples.keeping.workflows import PLAIN, REOPENABLE
from runs.ids import uuid7
from runs.models import (
    Compensation,
    CompensationOrder,
    Doubt,
    IdempotencyRecord,
    LegalHold,
    OutboxBody,
    OutboxLane,
    OutboxMessage,
    Review,
    Run,
    Tenant,
    Wait,
    Worker,
    WorkflowPlan,
)

HELD_TENANT = "drill-held"
WHY = "the drill `retention`"


def plans() -> dict[str, WorkflowPlan]:
    """The plans of the drill's workflows, as its workers will have them."""
    found = {}
    with connection.cursor() as cursor:
        for name in (PLAIN, REOPENABLE):
            found[name] = WorkflowPlan.objects.get(pk=plan_id(cursor, registry.workflow(name)))
    return found


def held_tenant() -> Tenant:
    """The tenant that is held as a whole."""
    return Tenant.objects.get_or_create(slug=HELD_TENANT, defaults={"name": "Drills, held"})[0]


def set_rules(tenants: Collection[Tenant]) -> None:
    """Say how long each class of these tenants' runs is kept, if that is not said yet."""
    for tenant in tenants:
        for workflow, reopen in ((PLAIN, 0), (REOPENABLE, REOPEN_DAYS)):
            known = rules.windows(tenant, workflow)
            for subject, days in (*DAYS.items(), ("reopen", reopen)):
                if known[subject].seconds != days * 86400:
                    rules.set_rule(
                        subject, keeps="seconds", seconds=days * 86400, tenant=tenant, workflow=workflow, actor=ACTOR,
                        reason=WHY,
                    )  # fmt: skip


def place_holds(maker: Maker) -> None:
    """Hold what the table says is held; and some that are not held any more."""
    holds.place(tenant=maker.held_tenant, actor=ACTOR, reason=WHY)
    [(label, value)] = HELD.items()
    holds.place(tenant=maker.tenant, label=label, value=value, actor=ACTOR, reason=WHY)
    for run, cell in maker.cells.items():
        if cell.held_by in ("hold on the run", "hold lifted"):
            made = holds.place(tenant=maker.tenant, run_id=run, actor=ACTOR, reason=WHY)
            if cell.held_by == "hold lifted":
                holds.lift(made.pk, tenant=maker.tenant, actor=ACTOR, reason=WHY)


def lift_holds(maker: Maker) -> None:
    """Lift all that stand."""
    for hold in LegalHold.objects.filter(tenant__in=maker.tenants, lifted_at=None).select_related("tenant"):
        holds.lift(hold.pk, tenant=hold.tenant, actor=ACTOR, reason=WHY)


def dead_worker() -> Worker:
    """One that held runs, and has gone without a word."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('runs_worker_number')")
        number = cursor.fetchone()[0]
    return Worker.objects.create(
        id=uuid7(), number=number, host="gone", pid=1, lease_seconds=1.0, heartbeat_seconds=0.25
    )


def settle_all(ids: Collection[UUID]) -> None:
    """Close whatever of these runs would be somebody's work otherwise, and cancel those that are open."""
    cancel_all(Run.objects.open().filter(pk__in=list(ids)), reason=WHY)
    at, mine = timezone.now(), Q(run__in=list(ids))
    Wait.objects.filter(mine, state="open").update(state="cancelled")
    Review.objects.filter(mine, closed_at=None).update(closed_at=at, closed_as="ended", closed_by=ACTOR)
    Doubt.objects.filter(mine, settled_at=None).update(
        settled_at=at, settled_as="did_not", settled_by=ACTOR, evidence=WHY
    )
    OutboxMessage.objects.filter(lane__run__in=list(ids), state="pending").update(state="skipped", finished_at=at)
    OutboxLane.objects.filter(mine, depth__gt=0).update(depth=0)
    OutboxBody.objects.filter(effect__run__in=list(ids), open_messages__gt=0).update(open_messages=0)
    IdempotencyRecord.objects.filter(mine, completed_at=None).update(state="withdrawn", completed_at=at)
    Compensation.objects.filter(mine, settled_at=None).update(
        state="waived", settled_at=at, settled_by=ACTOR, reason=WHY
    )
    CompensationOrder.objects.filter(mine, applied_at=None).update(applied_at=at)

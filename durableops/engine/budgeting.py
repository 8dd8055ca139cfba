"""What people do about budgets: give a run, or a tenant, more; and how budgets are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum

from durableops.authoring.policies import Budget
from durableops.engine import bell, blocks, budget_rows, questions
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused, write
from durableops.engine.spent import shown
from durableops.errors import DefinitionError, InputRefused
from durableops.limits.clocks import Clock
from runs.models import AuditEntry, Run, RunBudget, Tenant, Wait
from runs.models.budget import PERIODS
from runs.states import State

Unit = Literal["tokens", "money", "calls", "steps", "compute_seconds"]
MOST_ASKED = 10_000
_OF_TENANTS = """
SELECT s.tenant_id, s.period, s.unit, s.currency, s.starts_at, s.ends_at,
    (p.budgets -> s.period ->> s.unit)::numeric + s.more,
    s.spent + s.over + coalesce(k.spent, 0), coalesce(k.reserved, 0), s.over
FROM runs_quota_policy p JOIN runs_tenant_spending s ON s.tenant_id = p.tenant_id
LEFT JOIN LATERAL (
    SELECT sum(o.spent) AS spent,
        sum((SELECT sum(v.amount) FROM runs_reservation v WHERE v.block_id = o.id)) AS reserved
    FROM runs_budget_block o WHERE o.spending_id = s.id) k ON true
WHERE s.tenant_id = ANY(%s) AND s.starts_at <= now() AND s.ends_at > now() AND p.budgets -> s.period ? s.unit
ORDER BY s.tenant_id, s.period, s.unit"""


@audited_refusals
def add_budget(run_id: UUID, *, tenant: Tenant, actor: str, reason: str, amounts: Mapping[str, Any]) -> Done:
    """Raise what an open or an exhausted run may spend. Answers the question whether to, if a person is asked that.

    An exhausted run goes on when it is retried.
    """
    reason = kept_reason(reason)
    with transaction.atomic(), connection.cursor() as cursor:
        run = locked(tenant, run_id)
        if run.is_terminal and run.state != State.EXHAUSTED:
            raise refused(run, "add_budget", "an open run, or one that is exhausted")
        before, after = raise_limits(run, amounts, verb="add_budget")
        questions.drop(cursor, run.pk, Clock.BUDGET, by=actor)
        write(cursor, run, "add_budget", actor=actor, reason=reason, before=before, after=after)
        transaction.on_commit(bell.ring)
    run.refresh_from_db(fields=["state"])
    said = ", ".join(f"{text} {unit}" for unit, text in after.items())
    return Done(run_id=run.pk, state=run.state, settled=True, message=f"may spend {said} now.")


def raise_limits(run: Run, amounts: Mapping[str, Any], *, verb: str) -> tuple[dict[str, str], dict[str, str]]:
    """Add to the budgets of a run whose row is locked. Returns its limits before and after, as text."""
    wanted = _added(amounts)
    before, after = {}, {}
    for unit, amount in sorted(wanted.items()):
        raised = budget_rows.add(run, unit, amount)
        if raised is None:
            raise refused(run, verb, f"a run with a budget of {unit}; this one has none, so nothing limits it")
        before[unit], after[unit] = shown(raised[1]), shown(raised[0].most)
    return before, after


def add_tenant_budget(
    tenant: Tenant, *, actor: str, reason: str, period: str, amounts: Mapping[str, Any]
) -> dict[str, str]:
    """Raise what a tenant may spend in its present day or month alone. Lets go on the runs that are asked about it.

    Returns the limits as they are now, as texts. Raises InputRefused for what has no limit or is no amount.
    """
    reason = kept_reason(reason)
    if period not in PERIODS:
        raise InputRefused(f"period is {period!r}; give {' or '.join(PERIODS)}.", path="/period")
    wanted = _added(amounts)
    before, after, spendings = {}, {}, []
    with transaction.atomic(), connection.cursor() as cursor:
        for unit, amount in sorted(wanted.items()):
            raised = blocks.add(cursor, tenant.pk, period, unit, amount)
            if raised is None:
                raise InputRefused(
                    f"tenant {tenant.slug} has no budget of {unit} for a {period}, so nothing limits it.",
                    path="/budget",
                )
            spendings.append(raised[0])
            before[unit], after[unit] = shown(raised[1]), shown(raised[1] + amount)
        AuditEntry.objects.create(
            tenant=tenant, actor=actor, verb="add_tenant_budget", target_kind="quota tenant", target_id=tenant.slug,
            reason=reason, before={"period": period, **before}, after={"period": period, **after},
        )  # fmt: skip
        transaction.on_commit(bell.ring)
    # After the commit, since runs are locked before budgets. What is missed by a crash a person's yes lets go on.
    for spending_id in spendings:
        _ask_no_more(tenant, spending_id, by=actor)
    return after


def _ask_no_more(tenant: Tenant, spending_id: int, *, by: str) -> None:
    asked = Wait.objects.filter(tenant=tenant, state="open", clock=Clock.BUDGET, correlation=str(spending_id))
    for run_id in list(asked.order_by("run_id").values_list("run_id", flat=True)[:MOST_ASKED]):
        with transaction.atomic(), connection.cursor() as cursor:
            locked(tenant, run_id)
            questions.drop(cursor, run_id, Clock.BUDGET, by=by, about=spending_id)


def _added(amounts: Mapping[str, Any]) -> dict[str, Decimal]:
    try:
        wanted = Budget.amounts(amounts)
    except DefinitionError as error:
        raise InputRefused(str(error).split(": ", 1)[-1], path="/budget") from None
    if not wanted or any(amount <= 0 for amount in wanted.values()):
        raise InputRefused("nothing is added: name a unit with an amount above 0.", path="/budget")
    return wanted


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """One budget as people read it."""

    unit: Unit
    currency: str
    most: Decimal
    spent: Decimal
    reserved: Decimal
    policy: str


def of_run(run: Run) -> list[OfRun]:
    """The budgets of a run, with what is reserved of each just now."""
    rows = RunBudget.objects.filter(run=run).annotate(reserved=Sum("reservations__amount")).order_by("unit")
    return [
        OfRun(
            unit=cast("Unit", row.unit), currency=row.currency, most=row.most, spent=row.spent,
            reserved=row.reserved or Decimal(0), policy=row.policy,
        )
        for row in rows
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OfTenant:
    """What became of one budget of a tenant in its present day or month. There is none before something was spent."""

    period: str
    unit: str
    currency: str
    starts_at: datetime
    ends_at: datetime
    most: Decimal
    spent: Decimal
    """All of it, what went over the limit included."""
    reserved: Decimal
    over: Decimal


def of_tenants(tenants: Sequence[int]) -> dict[int, list[OfTenant]]:
    """The present periods of these tenants."""
    names = tuple(OfTenant.__dataclass_fields__)
    found: dict[int, list[OfTenant]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_OF_TENANTS, [list(tenants)])
        for tenant_id, *row in cursor.fetchall():
            found.setdefault(tenant_id, []).append(OfTenant(**dict(zip(names, row, strict=True))))
    return found


def spent_units(run: Run) -> list[str]:
    """The budgets of a run of which nothing is left."""
    return sorted(row.unit for row in run.budgets.all() if row.spent >= row.most)

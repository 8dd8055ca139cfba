"""What people do about budgets: give a run more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum

from durableops.authoring.policies import Budget
from durableops.engine import bell, budget_rows, questions
from durableops.engine.acting import Done, audited_refusals, kept_reason, locked, refused, write
from durableops.engine.spent import shown
from durableops.errors import DefinitionError, InputRefused
from durableops.limits.clocks import Clock
from runs.models import Run, RunBudget, Tenant
from runs.states import State

Unit = Literal["tokens", "money", "calls", "steps", "compute_seconds"]


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
    try:
        wanted = Budget.amounts(amounts)
    except DefinitionError as error:
        raise InputRefused(str(error).split(": ", 1)[-1], path="/budget") from None
    if not wanted or any(amount <= 0 for amount in wanted.values()):
        raise InputRefused("nothing is added: name a unit with an amount above 0.", path="/budget")
    before, after = {}, {}
    for unit, amount in sorted(wanted.items()):
        raised = budget_rows.add(run, unit, amount)
        if raised is None:
            raise refused(run, verb, f"a run with a budget of {unit}; this one has none, so nothing limits it")
        before[unit], after[unit] = shown(raised[1]), shown(raised[0].most)
    return before, after


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


def spent_units(run: Run) -> list[str]:
    """The budgets of a run of which nothing is left."""
    return sorted(row.unit for row in run.budgets.all() if row.spent >= row.most)

"""The budget a new run is given, and what people add to it."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from durableops.authoring.policies import Budget
from durableops.conf import get_conf
from runs.models import Run, RunBudget
from runs.transitions import Cursor

_INSERT = """
INSERT INTO runs_budget (run_id, unit, currency, granted, most, spent, policy)
SELECT %(run)s, x.unit, CASE WHEN x.unit = 'money' THEN %(currency)s ELSE '' END, x.most, x.most, 0, %(policy)s
FROM unnest(%(units)s::text[], %(amounts)s::numeric[]) x(unit, most)"""


def put(cursor: Cursor, run_id: UUID, budget: Budget | None, policy: str) -> None:
    """Give a new run the budget of its definition."""
    amounts = {} if budget is None else budget.limits
    if amounts:
        cursor.execute(
            _INSERT,
            {
                "run": run_id, "units": list(amounts), "amounts": list(amounts.values()), "policy": policy,
                "currency": get_conf().currency,
            },
        )  # fmt: skip


def add(run: Run, unit: str, amount: Decimal) -> tuple[RunBudget, Decimal] | None:
    """Raise one of a run's budgets, its row locked. Returns it with its limit before; None if the run has none."""
    found = RunBudget.objects.select_for_update(no_key=True).filter(run=run, unit=unit).first()
    if found is None:
        return None
    before, found.most = found.most, found.most + amount
    found.save(update_fields=["most"])
    return found, before

"""What each named constraint of clocks and budgets refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from runs.models import Reservation, Run, RunBudget
from tests.factories import make_run, now


def make_budget(**over: Any) -> RunBudget:
    """A hundred tokens for a run."""
    run: Run = over.pop("run", None) or make_run()
    values: dict[str, Any] = {"unit": "tokens", "granted": Decimal(100), "most": Decimal(100)}
    return RunBudget.objects.create(run=run, **(values | over))


def make_reservation(budget: RunBudget, **over: Any) -> Reservation:
    """Ten of them."""
    values: dict[str, Any] = {"run": budget.run, "fence": 1, "token": uuid.uuid4(), "amount": Decimal(10)}
    return Reservation.objects.create(budget=budget, **(values | over))


def one_unit_twice() -> None:
    run = make_run()
    for _ in range(2):
        make_budget(run=run)


def one_reservation_twice() -> None:
    budget, token = make_budget(), uuid.uuid4()
    for _ in range(2):
        make_reservation(budget, token=token)


VIOLATIONS = {
    "run_queue_clock_only_while_queued": lambda: make_run(state="waiting", queue_expires_at=now()),
    "run_clock_policies_known": lambda: make_run(deadline_policy="hope"),
    "budget_unit_unique": one_unit_twice,
    "budget_unit_known": lambda: make_budget(unit="gold"),
    "budget_policy_known": lambda: make_budget(policy="hope"),
    "budget_amounts_sane": lambda: make_budget(most=Decimal(99)),
    "budget_currency_iff_money": lambda: make_budget(unit="money"),
    "reservation_once_per_budget": one_reservation_twice,
    "reservation_amount_sane": lambda: make_reservation(make_budget(), amount=Decimal(-1)),
}

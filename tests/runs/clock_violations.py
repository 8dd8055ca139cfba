"""What each named constraint of clocks and budgets refuses; `test_constraints` provokes them with all others."""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal
from typing import Any

from runs.models import BudgetBlock, Gate, QuotaPolicy, Reservation, Run, RunBudget, TenantSpending
from tests.factories import make_run, make_tenant, make_worker, now


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


def make_spending(**over: Any) -> TenantSpending:
    """A hundred tokens of a tenant, for a day."""
    at = now()
    values: dict[str, Any] = {"tenant": make_tenant(), "period": "day", "unit": "tokens", "starts_at": at}
    values |= {"ends_at": at + timedelta(days=1), "most": Decimal(100)}
    return TenantSpending.objects.create(**(values | over))


def make_block(**over: Any) -> BudgetBlock:
    """Ten of them."""
    spending = over.pop("spending", None) or make_spending()
    worker = over.pop("worker", None) or make_worker()
    return BudgetBlock.objects.create(**({"spending": spending, "worker": worker, "amount": Decimal(10)} | over))


def one_period_twice() -> None:
    at = now()
    for _ in range(2):
        make_spending(starts_at=at, ends_at=at + timedelta(days=1))


def one_block_twice() -> None:
    spending, worker = make_spending(), make_worker()
    for _ in range(2):
        make_block(spending=spending, worker=worker)


def one_reservation_of_a_block_twice() -> None:
    block, run, token = make_block(), make_run(), uuid.uuid4()
    for _ in range(2):
        Reservation.objects.create(block=block, run=run, fence=1, token=token, amount=Decimal(1))


def make_gate(**over: Any) -> Gate:
    """A tenant's cap, closed for a minute."""
    at = now()
    values: dict[str, Any] = {"gate": "quota.tenant", "subject": "tenant:1", "since": at, "seen_at": at, "held": 1}
    return Gate.objects.create(**(values | over))


VIOLATIONS = {
    "gate_known": lambda: make_gate(gate="hope"),
    "gate_stretch_sane": lambda: make_gate(held=0),
    "spending_period_unique": one_period_twice,
    "spending_period_known": lambda: make_spending(period="week"),
    "spending_unit_known": lambda: make_spending(unit="gold"),
    "spending_period_forward": lambda: make_spending(ends_at=now() - timedelta(days=1)),
    "spending_within_limit": lambda: make_block(amount=Decimal(101)),
    "spending_amounts_sane": lambda: make_spending(over=Decimal(-1)),
    "block_once_per_worker": one_block_twice,
    "block_within_amount": lambda: make_block(spent=Decimal(11)),
    "reservation_once_per_block": one_reservation_of_a_block_twice,
    "reservation_of_budget_or_block": lambda: make_reservation(make_budget(), block=make_block()),
    "quota_policy_budgets_sane": lambda: QuotaPolicy.objects.create(tenant=make_tenant(), budget_policy="hope"),
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

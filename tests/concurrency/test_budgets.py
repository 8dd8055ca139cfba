"""Several at once spend from one budget, each over a connection of its own: never more than there is."""

from __future__ import annotations

import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from durableops.engine import budgets
from durableops.engine.database import Database
from runs.models import Reservation, Run, RunBudget
from tests.factories import make_run
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


def with_budget(most: str) -> tuple[Run, RunBudget]:
    run = make_run(state="running")
    amounts = {"granted": Decimal(most), "most": Decimal(most)}
    return run, RunBudget.objects.create(run=run, unit="money", currency="EUR", **amounts)


def hand_of(run: Run) -> Any:
    step = SimpleNamespace(is_async=True, id="first")
    return SimpleNamespace(run_id=run.pk, fence=run.fence, step=step, reserved=[])


def reserves(run: Run, amount: str) -> Background:
    def work() -> Any:
        database = Database(name="spends")
        made = budgets.Reserved(token=uuid.uuid4(), amounts={"money": Decimal(amount)})
        try:
            return budgets._try_reserve(database, hand=hand_of(run), made=made), made
        finally:
            database.close()

    return Background(work)


def test_parallel_calls_cannot_spend_one_budget_several_times(database, second):  # C068
    run, budget = with_budget("1.00")
    with holding(second, "SELECT 1 FROM runs_budget WHERE id = %s FOR UPDATE", [budget.pk]):
        asked = [reserves(run, "0.40") for _ in range(5)]
        until_blocked(count=5)
    answers = [one.result() for one in asked]
    granted = [made for short, made in answers if short is None]
    assert len(granted) == 2
    assert Reservation.objects.count() == 2
    for made in granted:
        made.settle(money=Decimal("0.35"))
        budgets._settle(database, made=made)
    budget.refresh_from_db()
    assert (budget.spent, Reservation.objects.count()) == (Decimal("0.70"), 0)
    # What is left covers a third one only if it asks for no more than that.
    assert reserves(run, "0.31").result()[0] is not None
    assert reserves(run, "0.30").result()[0] is None


def test_reservation_of_a_holder_that_lost_its_run_is_booked_as_it_stands(database):  # C070
    run, budget = with_budget("1.00")
    short, lost = reserves(run, "0.40").result()
    assert short is None
    Run.objects.filter(pk=run.pk).update(fence=run.fence + 1)
    run.refresh_from_db()
    assert reserves(run, "0.40").result()[0] is None
    budget.refresh_from_db()
    assert (budget.spent, Reservation.objects.get().amount) == (Decimal("0.40"), Decimal("0.40"))
    # What the late one says of it changes nothing any more.
    lost.settle(money=0)
    budgets._settle(database, made=lost)
    budget.refresh_from_db()
    assert budget.spent == Decimal("0.40")
    assert reserves(run, "0.40").result()[0] is not None

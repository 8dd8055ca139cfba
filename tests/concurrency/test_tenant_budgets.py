"""Workers that spend one tenant's budget, each over a connection of its own: never more than there is, nobody behind
anybody."""

from __future__ import annotations

import uuid
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError

from durableops.engine import blocks, budgets, quotas
from durableops.engine.database import Database
from durableops.engine.quotas import Owner
from runs.models import BudgetBlock, Reservation, Run, TenantSpending, Worker
from tests.factories import make_run, make_tenant, make_worker
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
LIMITED = frozenset({("day", "tokens")})


@pytest.fixture(autouse=True)
def limit(transactional_db: None) -> None:
    """A hundred tokens a day."""
    changes = {"budgets": {"day": {"tokens": 100}}}
    quotas.set_quota(Owner(tenant=make_tenant()), changes, actor="ada", reason="the plan they have")


class Spender:
    """One worker with one run."""

    def __init__(self) -> None:
        self.worker: Worker = make_worker()
        self.run: Run = make_run(state="running", worker=self.worker)
        self.holder = blocks.Holder(tenant_id=self.run.tenant_id, worker_id=self.worker.pk, limited=LIMITED)
        step = SimpleNamespace(is_async=True, id="first")
        claimed = SimpleNamespace(tenant_id=self.run.tenant_id)
        self.hand: Any = SimpleNamespace(
            run_id=self.run.pk, fence=self.run.fence, step=step, reserved=[], claimed=claimed, worker_id=self.worker.pk
        )

    def reserves(self, amount: int) -> Background:
        """On a connection of its own; answers with what is short and the reservation."""

        def work() -> Any:
            database = Database(name="spends")
            made = budgets.Reserved(token=uuid.uuid4(), amounts={"tokens": Decimal(amount)}, of_tenant=True)
            try:
                return budgets._try_reserve(database, hand=self.hand, made=made, holder=self.holder), made
            finally:
                database.close()

        return Background(work)

    def has(self, amount: int) -> budgets.Reserved:
        short, made = self.reserves(amount).result()
        assert short is None, short
        return made


def totals() -> tuple[Any, Any, Any]:
    """Spent by those who returned, in blocks, over the limit."""
    row = TenantSpending.objects.get()
    return row.spent, row.blocked, row.over


def test_workers_that_race_for_the_last_of_a_budget_get_no_more_than_there_is(database, second):
    Spender().has(1)
    spenders = [Spender() for _ in range(5)]
    with holding(second, "SELECT 1 FROM runs_tenant_spending FOR UPDATE"):
        asked = [one.reserves(40) for one in spenders]
        until_blocked(count=5)
    granted = [made for short, made in (one.result() for one in asked) if short is None]
    assert len(granted) == 2
    assert (totals(), sum(row.amount for row in Reservation.objects.all())) == ((0, 100, 0), 81)
    for made in granted:
        made.settle(tokens=10)
        budgets._settle(database, made=made)
    # What others gave back is to be had at once, wherever it lies.
    assert Spender().reserves(80).result()[0] is not None
    assert Spender().reserves(79).result()[0] is None


def test_worker_spends_from_its_block_while_somebody_holds_the_row_of_the_tenant(database, second):
    spender, other = Spender(), Spender()
    spender.has(1)
    other.has(1)
    with holding(second, "SELECT 1 FROM runs_tenant_spending FOR UPDATE"):
        made = spender.has(1)
        budgets._settle(database, made=made)
        # And nobody stands behind another's block.
        second.execute("SELECT 1 FROM runs_budget_block WHERE worker_id = %s FOR UPDATE", [other.worker.pk])
        spender.has(0)
    assert totals() == (0, 4, 0)


def test_two_first_spenders_of_a_day_open_it_once(second):
    with holding(second, "LOCK TABLE runs_tenant_spending IN SHARE MODE"):
        asked = [Spender().reserves(10) for _ in range(2)]
        until_blocked(count=2)
    assert [one.result()[0] for one in asked] == [None, None]
    assert totals() == (0, 20, 0)


def test_late_word_of_a_worker_whose_run_was_taken_changes_nothing(database):
    spender = Spender()
    made = spender.has(30)
    Run.objects.filter(pk=spender.run.pk).update(fence=spender.run.fence + 1)
    assert Spender().reserves(71).result()[0] is not None
    made.settle(tokens=0)
    budgets._settle(database, made=made)
    assert BudgetBlock.objects.get(worker=spender.worker).spent == 30
    # Only when it ends does its block return; what it had spent stays spent.
    Worker.objects.filter(pk=spender.worker.pk).update(ended_at=spender.worker.renewed_at or spender.run.created_at)
    assert database.transacting(blocks.return_ended) == 1
    assert totals()[0] == 30
    assert database.transacting(blocks.return_ended) == 0


def test_block_from_which_a_run_still_spends_waits_and_gives_back_the_rest(database):
    spender = Spender()
    made = spender.has(30)
    spender.has(0)
    BudgetBlock.objects.update(amount=60)
    Worker.objects.filter(pk=spender.worker.pk).update(ended_at=spender.run.created_at)
    assert database.transacting(blocks.return_ended) == 0
    assert totals() == (0, 30, 0)
    budgets._settle(database, made=made)
    Reservation.objects.all().delete()
    assert database.transacting(blocks.return_ended) == 1
    assert totals() == (30, 0, 0)


def test_database_refuses_blocks_past_the_limit_whoever_gives_them():
    first, second = Spender(), Spender()
    first.has(60)
    with pytest.raises(IntegrityError, match="spending_within_limit"):
        BudgetBlock.objects.create(spending=TenantSpending.objects.get(), worker=second.worker, amount=Decimal(41))
    assert totals() == (0, 60, 0)

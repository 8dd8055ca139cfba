"""Budgets of tenants for a day or a month: reserved in blocks of workers, spent once, and told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from durableops import Budget, Retry, State, step, tool, workflow
from durableops.engine import budgeting, commands, quotas
from durableops.engine.burial import declare_ended
from durableops.engine.quotas import Owner
from durableops.errors import InputRefused
from runs.models import AuditEntry, BudgetBlock, Reservation, Run, RunEvent, Tenant, TenantSpending, Wait
from tests.factories import make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
AT_ONCE = Retry(max_attempts=10, first_delay=0.0, jitter=0.0)


class Counting(State):
    n: int = 0


def declare(*functions: Any, of_step: Mapping[str, Any] | None = None, **options: Any) -> Any:
    steps = {
        id_: step(id=id_, **({"retry": AT_ONCE} | dict(of_step or {})))(function)
        for id_, function in zip("abc", functions, strict=False)
    }
    return workflow(name="spends", version=1, state=Counting, **options)(type("Spends", (), steps))


def spends(amount: int, actual: int | None = None) -> Any:
    def a(run: Any) -> None:
        with run.spend(tokens=amount) as cost:
            cost.settle(tokens=amount if actual is None else actual)

    return a


def limit(tenant: Tenant, budgets: dict[str, Any], **more: Any) -> None:
    quotas.set_quota(Owner(tenant=tenant), {"budgets": budgets} | more, actor="ada", reason="the plan they have")


def seen(tenant: Tenant, unit: str = "tokens", period: str = "day") -> tuple[Any, Any, Any]:
    """Limit, spent, reserved."""
    found = budgeting.of_tenants([tenant.pk])[tenant.pk]
    one = next(row for row in found if (row.unit, row.period) == (unit, period))
    return one.most, one.spent, one.reserved


def list_of_periods() -> list[Any]:
    return list(TenantSpending.objects.order_by("starts_at"))


def firing(run: Run) -> dict[str, Any]:
    data: dict[str, Any] = RunEvent.objects.filter(run=run, data__clock="budget").latest("id").data
    return data


def test_runs_of_a_tenant_spend_from_one_budget_until_it_is_spent_and_others_go_on(engine):
    limit(engine.tenant, {"day": {"tokens": 100}, "month": {"tokens": 1000}})
    declare(lambda run: {"found": 3}, spends(40))
    states = [engine.run("spends").state for _ in range(3)]
    assert states == ["succeeded", "succeeded", "exhausted"]
    assert (seen(engine.tenant), seen(engine.tenant, period="month")) == ((100, 80, 0), (1000, 80, 0))
    told = firing(Run.objects.get(state="exhausted"))
    assert (told["cause"], told["unit"], told["period"], told["limit"], told["spent"], told["wanted"]) == (
        "budget_spent", "tokens", "day", "100", "80", "40",
    )  # fmt: skip
    assert told["done"] == ["a"]
    # Less is still to be had, and what belongs to others is theirs.
    assert engine.run("spends", tenant=make_tenant("other")).state == "succeeded"


def test_smaller_one_goes_on_where_a_larger_one_does_not_fit(engine):
    limit(engine.tenant, {"day": {"tokens": 100}})

    def a(run: Any) -> None:
        with run.spend(tokens=90 if run.state.n else 30):
            pass

    declare(a)
    states = [engine.run("spends", {"n": n}).state for n in (0, 1, 0)]
    assert states == ["succeeded", "exhausted", "succeeded"]


def test_calls_steps_and_computing_are_counted_for_the_tenant(engine, later):
    limit(engine.tenant, {"day": {"calls": 3, "steps": 10}, "month": {"compute_seconds": 1000}})

    @tool(safety="read", name="look", retry=Retry(max_attempts=1))
    def look(call: Any) -> int:
        return 1

    def a(run: Any) -> None:
        later(7)
        for n in range(2):
            run.call(look, key=str(n))

    declare(a)
    states = [engine.run("spends").state for _ in range(2)]
    assert (states, firing(Run.objects.get(state="exhausted"))["phase"]) == (["succeeded", "exhausted"], "calling")
    assert (seen(engine.tenant, "calls")[:2], seen(engine.tenant, "steps")[:2]) == ((3, 3), (10, 2))
    most, spent, reserved = seen(engine.tenant, "compute_seconds", "month")
    assert (most, reserved, spent >= 14) == (1000, 0, True)


def test_step_is_stopped_when_the_computing_of_the_tenant_is_spent(engine, later):
    limit(engine.tenant, {"day": {"compute_seconds": 10}})

    def a(run: Any) -> None:
        later(11)
        run.progress(1)

    declare(a)
    run = engine.run("spends")
    most, spent, reserved = seen(engine.tenant, "compute_seconds")
    # What it took longer than it was allowed was done all the same.
    assert (run.state, firing(run)["unit"], most, reserved, spent >= 11) == (
        "exhausted", "compute_seconds", 10, 0, True,
    )  # fmt: skip


def test_what_costs_more_than_was_reserved_is_told_and_keeps_the_limit(engine):
    limit(engine.tenant, {"day": {"tokens": 100}})
    declare(spends(60, actual=90), spends(5, actual=30))
    assert engine.run("spends").state == "succeeded"
    row: Any = TenantSpending.objects.get()
    assert (seen(engine.tenant)[:2], row.over, row.spent + row.blocked) == ((100, 120), 20, 100)
    assert engine.run("spends").state == "exhausted"


def test_failed_attempts_cost_the_tenant_what_they_cost(engine):
    limit(engine.tenant, {"day": {"money": "1.00"}})

    def a(run: Any) -> None:
        with run.spend(money=0.4):
            raise ValueError("of no use")

    declare(a)
    run = engine.run("spends")
    assert (run.state, seen(engine.tenant, "money")[1], TenantSpending.objects.get().currency) == (
        "exhausted", Decimal("0.8"), "EUR",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        ("exhaust", "exhausted"),
        ("fail", "failed"),
        ("cancel", "cancelled"),
        ("extend", "succeeded"),
        ("ask", "waiting"),
    ],
)
def test_spent_budget_of_a_tenant_meets_its_policy(engine, policy, state):
    limit(engine.tenant, {"day": {"tokens": 50}}, budget_policy=policy)
    declare(spends(40), spends(40))
    run = engine.run("spends")
    assert (run.state, firing(run)["next_state"]) == (state, "running" if policy == "extend" else state)
    if policy == "extend":
        # As much again, once in a day.
        assert (seen(engine.tenant)[:2], engine.run("spends").state) == ((100, 80), "exhausted")


def test_two_who_say_yes_about_one_spent_budget_give_as_much_again_once(engine):
    limit(engine.tenant, {"day": {"tokens": 50}}, budget_policy="ask")
    declare(spends(40))
    runs = [engine.run("spends") for _ in range(3)]
    assert [run.state for run in runs] == ["succeeded", "waiting", "waiting"]
    for wait in Wait.objects.filter(clock="budget"):
        commands.approve(wait.pk, tenant=engine.tenant, actor="ada", reason="worth it")
    engine.drain()
    assert (seen(engine.tenant)[:2], Run.objects.filter(state="succeeded").count()) == ((100, 80), 2)


def test_admin_adds_to_the_present_day_with_a_reason_and_those_who_were_asked_go_on(engine):
    limit(engine.tenant, {"day": {"tokens": 50}}, budget_policy="ask")
    declare(spends(40))
    run = [engine.run("spends") for _ in range(2)][1]
    verb = {"actor": "ada", "reason": "the report is due"}
    assert budgeting.add_tenant_budget(engine.tenant, period="day", amounts={"tokens": 30}, **verb) == {"tokens": "80"}
    engine.drain()
    run.refresh_from_db()
    entry = AuditEntry.objects.get(verb="add_tenant_budget")
    assert (run.state, seen(engine.tenant)[:2]) == ("succeeded", (80, 80))
    assert (entry.reason, entry.before["tokens"], entry.after["tokens"]) == (verb["reason"], "50", "80")
    for period, wrong in (("day", {}), ("day", {"money": 1}), ("year", {"tokens": 1}), ("day", {"tokens": -1})):
        with pytest.raises(InputRefused):
            budgeting.add_tenant_budget(engine.tenant, period=period, amounts=wrong, **verb)


def test_lowered_limit_holds_at_once_and_ends_nothing(engine):
    limit(engine.tenant, {"day": {"tokens": 1000}})
    held: list[Any] = []

    def a(run: Any) -> None:
        with run.spend(tokens=100):
            # The worker has more in its block than this.
            limit(engine.tenant, {"day": {"tokens": 50}})
            row: Any = TenantSpending.objects.get()
            held.append((row.most, row.spent + row.blocked))

    declare(a)
    assert engine.run("spends").state == "succeeded"
    assert held == [(100, 100)]
    assert (engine.run("spends").state, seen(engine.tenant)[:2]) == ("exhausted", (50, 100))
    quotas.set_quota(Owner(tenant=engine.tenant), {"budgets": {}}, actor="ada", reason="no limits any more")
    run_state = engine.run("spends").state  # it lowers the limit itself, after it was let in
    assert (run_state, seen(engine.tenant)[:2]) == ("succeeded", (50, 100))


def test_budget_of_the_run_and_of_the_tenant_are_both_kept(engine):
    limit(engine.tenant, {"day": {"tokens": 1000}})
    declare(spends(40), spends(40), budget=Budget(tokens=70))
    run = engine.run("spends")
    assert (run.state, "of_run" in firing(run), seen(engine.tenant)[1]) == ("exhausted", True, 40)


def test_blocks_return_with_a_lost_worker_and_what_it_was_about_to_spend_is_booked(engine):
    limit(engine.tenant, {"day": {"tokens": 1000}})
    taken: list[Any] = []

    def a(run: Any) -> None:
        with run.spend(tokens=100):
            if run.attempt == 1:
                engine.lose_worker()
                taken.append((seen(engine.tenant), BudgetBlock.objects.count()))

    declare(a)
    engine.run("spends")
    engine.drain()
    assert taken == [((1000, 100, 0), 0)]
    # The late one settled nothing, and the other one paid for itself.
    assert (seen(engine.tenant), Reservation.objects.count()) == ((1000, 200, 0), 0)


def test_block_of_a_worker_that_ended_without_a_word_is_swept_up(engine):
    limit(engine.tenant, {"day": {"tokens": 1000}})
    declare(spends(5))
    engine.run("spends")
    block: Any = BudgetBlock.objects.get()
    assert (block.amount, block.spent) == (20, 5)
    with engine.worker.database.transaction() as cursor:
        declare_ended(cursor, engine.worker.id, why="killed")
    engine.rounds()
    row: Any = TenantSpending.objects.get()
    assert (row.spent, row.blocked, BudgetBlock.objects.count()) == (5, 0, 0)


def test_next_day_begins_at_midnight_in_the_tenants_zone_and_the_last_one_is_kept(engine):
    limit(engine.tenant, {"day": {"tokens": 50}}, time_zone="Pacific/Auckland")
    declare(spends(40))
    assert [engine.run("spends").state for _ in range(2)] == ["succeeded", "exhausted"]
    day = timedelta(days=1)
    row: Any = TenantSpending.objects.get()
    # Time is moved by moving the record.
    TenantSpending.objects.update(starts_at=row.starts_at - day, ends_at=row.ends_at - day)
    assert engine.run("spends").state == "succeeded"
    old, new = list_of_periods()
    assert (old.ends_at, old.spent, old.blocked, new.ends_at) == (new.starts_at, 40, 0, row.ends_at)
    with engine.worker.database.cursor() as cursor:
        cursor.execute("SELECT (%s AT TIME ZONE 'Pacific/Auckland')::time::text", [new.starts_at])
        assert cursor.fetchone()[0] == "00:00:00"


def test_changed_zone_holds_from_the_next_day_on_and_leaves_no_gap(engine):
    limit(engine.tenant, {"day": {"tokens": 50}})
    declare(spends(10))
    engine.run("spends")
    ended = datetime.now(UTC) - timedelta(minutes=1)
    TenantSpending.objects.update(starts_at=ended - timedelta(days=1), ends_at=ended)
    limit(engine.tenant, {"day": {"tokens": 50}}, time_zone="Asia/Kolkata")
    engine.run("spends")
    old, new = list_of_periods()
    assert (old.ends_at, new.starts_at) == (ended, ended)


def test_budgets_that_cannot_be_are_refused_with_their_path(engine):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"budgets": {"week": {"tokens": 1}}}, "/budgets"),
        ({"budgets": {"day": {"gold": 1}}}, "/budgets/day"),
        ({"budgets": {"day": {"tokens": -1}}}, "/budgets/day"),
        ({"budgets": {"month": {"money": "much"}}}, "/budgets/month"),
        ({"budgets": {"month": {"money": "NaN"}}}, "/budgets/month"),
        ({"budgets": [1]}, "/budgets"),
        ({"budget_policy": "hope"}, "/budget_policy"),
        ({"time_zone": "Mars/Olympus"}, "/time_zone"),
    ]
    for changes, path in wrong:
        with pytest.raises(InputRefused) as refused:
            quotas.set_quota(Owner(tenant=engine.tenant), changes, actor="ada", reason="?")
        assert refused.value.path == path, changes
    assert not TenantSpending.objects.exists()


def test_tenant_without_budgets_takes_no_blocks(engine):
    declare(spends(10**9))
    assert engine.run("spends").state == "succeeded"
    with pytest.raises(InputRefused, match="nothing limits it"):
        budgeting.add_tenant_budget(engine.tenant, period="day", amounts={"tokens": 1}, actor="ada", reason="?")
    assert not TenantSpending.objects.exists()

"""Budgets of runs: reserved before, settled after, never spent twice; what happens when one is spent."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from durableops import Budget, Fatal, Retry, State, step, tool, workflow
from durableops.authoring.definitions import WorkflowDefinition
from durableops.engine import budgeting, commands
from durableops.errors import InputRefused, TransitionRefused
from runs.models import AuditEntry, Checkpoint, Reservation, Run, RunBudget, RunEvent, Wait

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
AT_ONCE = Retry(max_attempts=10, first_delay=0.0, jitter=0.0)


class Counting(State):
    n: int = 0


def declare(*functions: Any, of_step: dict[str, Any] | None = None, name: str = "spends", **options: Any) -> Any:
    ids = "abc"[: len(functions)]
    steps = {
        id_: step(id=id_, **({"retry": AT_ONCE} | (of_step or {})))(f) for id_, f in zip(ids, functions, strict=True)
    }
    return workflow(name=name, version=1, state=Counting, **options)(type("Spends", (), steps))


def spent(run: Run, unit: str) -> Any:
    return RunBudget.objects.get(run=run, unit=unit).spent


def firing(run: Run) -> dict[str, Any]:
    data: dict[str, Any] = RunEvent.objects.filter(run=run, data__clock="budget").latest("id").data
    return data


def test_run_gets_the_budget_of_its_definition_exactly(engine):
    declare(lambda run: None, budget=Budget(tokens=100, money=0.1))
    run = engine.start("spends")
    rows: dict[str, Any] = {row.unit: (row.most, row.spent, row.currency) for row in RunBudget.objects.filter(run=run)}
    assert rows == {"tokens": (100, 0, ""), "money": (Decimal("0.1"), 0, "EUR")}


def test_what_was_reserved_is_settled_by_what_it_cost(engine):
    def a(run: Any) -> None:
        with run.spend(tokens=40, money=Decimal("0.40")) as cost:
            assert Reservation.objects.count() == 2
            cost.settle(tokens=35)

    declare(a, budget=Budget(tokens=100, money=1))
    run = engine.run("spends")
    assert run.state == "succeeded"
    # What was not said counts as it was reserved.
    assert (spent(run, "tokens"), spent(run, "money")) == (35, Decimal("0.4"))
    assert not Reservation.objects.exists()


def test_run_without_a_budget_spends_freely_and_asks_nothing(engine, commits):
    def a(run: Any) -> None:
        with run.spend(tokens=10**9) as cost:
            cost.settle(tokens=1)

    declare(a)
    assert engine.run("spends").state == "succeeded"
    assert (commits.count, RunBudget.objects.count()) == (1, 0)


def test_spent_budget_ends_the_run_with_what_is_done_and_what_is_missing(engine):
    def b(run: Any) -> None:
        with run.spend(tokens=80):
            pass

    declare(lambda run: {"found": 3}, b, lambda run: None, budget=Budget(tokens=70))
    run = engine.run("spends")
    assert (run.state, run.error_class) == ("exhausted", "BudgetSpent")
    assert "Done: a. Missing: b, c." in run.error_message
    told = firing(run)
    assert (told["cause"], told["unit"], told["limit"], told["done"], told["missing"], told["next_state"]) == (
        "budget_spent", "tokens", "70", ["a"], ["b", "c"], "exhausted",
    )  # fmt: skip
    assert Checkpoint.objects.get(run=run, kind="step").output == '{"found":3}'


def test_failed_attempts_cost_what_they_cost_and_stop_the_third(engine):  # C070
    attempts = []

    def a(run: Any) -> None:
        with run.spend(money=0.4):
            attempts.append(run.attempt)
            raise ValueError("of no use")

    declare(a, budget=Budget(money=1))
    run = engine.run("spends")
    assert (run.state, attempts, spent(run, "money")) == ("exhausted", [1, 2], Decimal("0.8"))


def test_larger_reservation_than_what_is_left_does_not_hold_up_smaller_ones(engine):
    order: list[str] = []

    async def a(run: Any) -> None:
        async def part(name: str, tokens: int, actual: int) -> None:
            async with run.spend(tokens=tokens) as cost:
                order.append(name)
                await asyncio.sleep(0)
                while name == "first" and "small" not in order:
                    await asyncio.sleep(0.01)
                cost.settle(tokens=actual)

        first = asyncio.create_task(part("first", 60, 10))
        while not order:
            await asyncio.sleep(0.01)
        await asyncio.gather(part("large", 80, 80), part("small", 30, 5), first)

    declare(a, budget=Budget(tokens=100))
    run = engine.run("spends")
    assert (run.state, order, spent(run, "tokens")) == ("succeeded", ["first", "small", "large"], 95)


def test_calls_and_entries_are_counted_and_end_the_run(engine):
    sent = []

    @tool(safety="read", name="look", retry=Retry(max_attempts=1))
    def look(call: Any) -> int:
        sent.append(1)
        return 1

    declare(lambda run: [run.call(look, key=str(n)) for n in range(5)], budget=Budget(calls=3, steps=10))
    run = engine.run("spends")
    assert (run.state, len(sent), spent(run, "calls"), spent(run, "steps")) == ("exhausted", 3, 3, 1)
    assert firing(run)["phase"] == "calling"


def test_time_in_steps_is_settled_and_limits_the_next(engine, later):
    def a(run: Any) -> None:
        later(8)

    def b(run: Any) -> None:
        later(8)
        run.progress(1)

    declare(a, b, of_step={"timeout": 100.0}, budget=Budget(compute_seconds=10))
    run = engine.run("spends")
    assert (run.state, firing(run)["unit"]) == ("exhausted", "compute_seconds")
    assert spent(run, "compute_seconds") >= 16


@pytest.mark.parametrize(
    ("policy", "state"), [("exhaust", "exhausted"), ("fail", "failed"), ("cancel", "cancelled"), ("ask", "waiting"),
                          ("extend", "succeeded")],
)  # fmt: skip
def test_spent_budget_meets_its_policy(engine, policy, state):
    def a(run: Any) -> None:
        with run.spend(tokens=60):
            pass
        with run.spend(tokens=60, money=0):
            pass

    declare(a, budget=Budget(tokens=70, money=1), on_budget=policy)
    run = engine.run("spends")
    assert (run.state, firing(run)["next_state"]) == (state, "running" if policy == "extend" else state)
    if policy == "ask":
        RunBudget.objects.update(spent=0)
        wait = Wait.objects.get(run=run, clock="budget")
        commands.approve(wait.pk, tenant=run.tenant, actor="ada", reason="worth it")
        engine.drain()
        run.refresh_from_db()
        assert (run.state, RunBudget.objects.get(unit="tokens").most == 140) == ("succeeded", True)


def test_no_to_more_budget_exhausts_the_run(engine):
    def a(run: Any) -> None:
        with run.spend(tokens=60):
            pass

    declare(a, budget=Budget(tokens=50), on_budget="ask")
    run = engine.run("spends")
    wait = Wait.objects.get(run=run, clock="budget")
    commands.refuse(wait.pk, tenant=run.tenant, actor="ada", reason="no")
    run.refresh_from_db()
    assert (run.state, run.error_class) == ("exhausted", "BudgetSpent")


def test_children_spend_from_the_budget_of_the_run_above_them(engine):
    def spends(run: Any) -> None:
        with run.spend(tokens=40):
            pass

    declare(spends, name="below")
    declare(lambda run: len(run.children("below", [{}, {}, {}], on_failure="continue")), budget=Budget(tokens=100))
    run = engine.run("spends")
    engine.rounds()
    engine.drain()
    run.refresh_from_db()
    states = sorted(Run.objects.filter(parent=run).values_list("state", flat=True))
    assert (run.state, states, spent(run, "tokens")) == ("succeeded", ["exhausted", "succeeded", "succeeded"], 80)


def test_exhausted_run_goes_on_with_more_budget_and_the_audit_says_how_much(engine):
    def a(run: Any) -> None:
        with run.spend(tokens=60):
            pass

    declare(a, budget=Budget(tokens=50))
    run = engine.run("spends")
    RunBudget.objects.update(spent=50)
    verb = {"tenant": run.tenant, "actor": "ada", "reason": "worth it"}
    with pytest.raises(TransitionRefused, match="add tokens with the retry"):
        commands.retry(run.pk, **verb)
    commands.retry(run.pk, budget={"tokens": 100}, **verb)
    engine.drain()
    run.refresh_from_db()
    entry = AuditEntry.objects.filter(verb="retry").latest("id")
    assert (run.state, entry.before["tokens"], entry.after["tokens"]) == ("succeeded", "50", "150")


def test_person_gives_an_open_run_more_and_nothing_senseless(engine):
    declare(lambda run: run.wait_for("go"), budget=Budget(tokens=50))
    run = engine.run("spends")
    verb = {"tenant": run.tenant, "actor": "ada", "reason": "worth it"}
    assert "may spend 60 tokens" in budgeting.add_budget(run.pk, amounts={"tokens": 10}, **verb).message
    for wrong in ({}, {"tokens": -1}, {"gold": 1}, {"tokens": float("nan")}):
        with pytest.raises(InputRefused):
            budgeting.add_budget(run.pk, amounts=wrong, **verb)
    with pytest.raises(TransitionRefused, match="has none"):
        budgeting.add_budget(run.pk, amounts={"money": 1}, **verb)


def test_step_that_spends_what_is_no_amount_fails_with_a_sentence(engine):
    def a(run: Any) -> None:
        with run.spend(tokens=-1):
            raise Fatal("not reached")

    declared = declare(a, budget=Budget(tokens=50))
    assert isinstance(declared, WorkflowDefinition)
    run = engine.run("spends")
    assert (run.state, "tokens=-1" in run.error_message) == ("failed", True)

"""Values of an older run under newer code: they come back as they were, or a person is asked; never a default."""

from __future__ import annotations

import collections
import enum
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from durableops import Retry, State, migration, step, workflow
from durableops.engine import commands
from durableops.engine.inbound import send_event
from durableops.errors import StartConflict
from runs.models import Checkpoint, Review, Run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
ONCE = Retry(max_attempts=1)


class Colour(enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    FIRST = 1


class Invoice(State):
    number: str
    total: Decimal


class Kept(State):
    amount: Decimal = Decimal(0)
    moment: datetime | None = None
    day: date | None = None
    id: UUID | None = None
    raw: bytes = b""
    pair: tuple[int, str] = (0, "")
    members: set[int] = set()
    colour: Colour | None = None
    rank: Rank | None = None
    by_number: dict[int, str] = {}
    free: Any = None


def values() -> dict[str, Any]:
    return {
        "amount": Decimal("0.10"),
        "moment": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        "day": date(2026, 1, 2),
        "id": UUID(int=7),
        "raw": b"\x00\xff",
        "pair": (1, "a"),
        "members": {1, 2},
        "colour": Colour.RED,
        "rank": Rank.FIRST,
        "by_number": {1: "a"},
    }


# C092
def test_typed_state_is_the_same_in_another_worker_and_what_would_be_lost_fails_its_step(engine, own_registry):
    seen: list[Any] = []

    @workflow(name="typed", version=1, state=Kept)
    class Typed:
        @step
        def fill(run: Any) -> None:
            for name, value in values().items():
                setattr(run.state, name, value)

        @step
        def wait(run: Any) -> None:
            seen.append(run.state.model_copy(deep=True))
            run.wait_for("go")

        @step(retry=ONCE)
        def lose(run: Any) -> None:
            run.state.free = {"of": collections.Counter(a=1)}

    run = engine.run("typed")
    engine.lose_worker()
    send_event("go", tenant=engine.tenant, actor="post")
    engine.drain()
    run.refresh_from_db()
    assert len(seen) == 2, "before the worker was lost, and after it"
    for state in seen:
        for name, value in values().items():
            found = getattr(state, name)
            assert (found, type(found)) == (value, type(value)), name
    assert (run.state, run.step_id) == ("failed", "lose")
    assert "/free/of" in run.error_message
    assert "Counter" in run.error_message
    assert not Checkpoint.objects.filter(run=run, step_id="lose").exists(), "it was refused before it counted as done"


# C104
def test_value_whose_type_is_gone_parks_the_run_until_a_migration_maps_it(engine, own_registry):
    found: list[Any] = []

    class Billed(State):
        invoice: Invoice = Invoice(number="", total=Decimal(0))

    @workflow(name="billing", version=1, state=Billed)
    class Billing:
        @step
        def bill(run: Any) -> None:
            run.state.invoice = Invoice(number="R-7", total=Decimal("0.10"))

        @step
        def wait(run: Any) -> None:
            run.approval("pay")

    run = engine.run("billing")
    bytes_before = list(Checkpoint.objects.filter(run=run).order_by("seq").values_list("seq", "state"))

    def deploy(*, mapped: bool) -> None:
        own_registry.clear()

        class Claim(State):
            reference: str
            cents: int

        class Claimed(State):
            claim: Claim | None = None

        @workflow(name="billing", version=2, state=Claimed, migrate="automatic")
        class Later:
            @step
            def bill(run: Any) -> None:
                raise AssertionError("a committed step runs again")

            @step
            def wait(run: Any) -> None:
                run.approval("pay")
                found.append(run.state.claim)

        if mapped:

            @migration(Later, from_version=1)
            def invoice_became_claim(old: dict[str, Any]) -> dict[str, Any]:
                total = Decimal(old["invoice"]["total"])
                return {"claim": {"reference": old["invoice"]["number"], "cents": int(total * 100)}}

    deploy(mapped=False)
    commands.approve(run.waits.get().pk, tenant=engine.tenant, actor="rita")
    engine.drain()
    run.refresh_from_db()
    finding = Review.objects.get(run=run)
    assert (run.state, found) == ("in_review", [])
    assert ("field_removed", "/invoice") in [(d["kind"], d["subject"]) for d in finding.differences]
    assert "field removed /invoice" in finding.reason
    assert list(Checkpoint.objects.filter(run=run).order_by("seq").values_list("seq", "state")) == bytes_before
    deploy(mapped=True)
    commands.recheck(run.pk, tenant=engine.tenant, actor="rita", reason="it is mapped now")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, found[0].reference, found[0].cents) == ("succeeded", "R-7", 10)


# C104
def test_renamed_class_with_the_same_fields_changes_nothing_for_a_run(engine, own_registry):
    def deploy(name: str) -> None:
        own_registry.clear()
        inner = type(name, (State,), {"__annotations__": {"number": str}, "number": "", "__module__": __name__})
        outer = type("Outer", (State,), {"__annotations__": {"it": inner}, "it": inner(number="R-7")})
        body = step(id="wait")(lambda run: [run.approval("pay"), run.state.it.number][1])
        workflow(name="renamed", version=1, state=outer)(type("Renamed", (), {"wait": body}))

    deploy("Invoice")
    run = engine.run("renamed")
    deploy("Bill")
    commands.approve(run.waits.get().pk, tenant=engine.tenant, actor="rita")
    engine.drain()
    assert Checkpoint.objects.get(run=run, kind="finish").output == '"R-7"'


# C106
def test_other_options_under_the_same_key_never_continue_the_run_that_crashed(engine, own_registry):
    class Asked(State):
        agents: list[str]
        ran: list[str] = []

    @workflow(name="agents", version=1, state=Asked)
    class Agents:
        @step
        def first(run: Any) -> None:
            run.state.ran = list(run.state.agents)

        @step
        def second(run: Any) -> list[str]:
            run.wait_for("go", correlation=",".join(run.state.agents))
            return list(run.state.ran)

    run = engine.run("agents", {"agents": ["a"]}, start_key="order-7")
    engine.lose_worker()
    with pytest.raises(StartConflict, match="another input") as conflict:
        engine.start("agents", {"agents": ["a", "b"]}, start_key="order-7")
    assert (conflict.value.http_status, conflict.value.context["run"]) == (409, str(run.pk))
    other = engine.run("agents", {"agents": ["a", "b"]}, start_key="order-7b")
    for agents in ("a", "a,b"):
        send_event("go", tenant=engine.tenant, actor="post", correlation=agents)
    engine.drain()
    outputs = {c.run_id: c.output for c in Checkpoint.objects.filter(kind="finish")}
    assert outputs == {run.pk: '["a"]', other.pk: '["a","b"]'}
    assert Run.objects.get(pk=run.pk).input_hash != Run.objects.get(pk=other.pk).input_hash

"""One effect for a whole tenant: the first run does it, the others wait for what becomes of it, or take over."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest

from durableops import EffectConflict, Refused, Retry, State, step, tool, workflow
from durableops.engine import commands, settling
from durableops.engine.settlements import Settlement
from durableops.upkeep.invariants.report import CHECKS, examine
from runs.models import Checkpoint, Doubt, IdempotencyRecord, Run, RunEvent, Wait
from tests.factories import events_of, make_effect, make_run, make_tenant, make_wait, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=2, first_delay=0.0, jitter=0.0)


class Facts(State):
    n: int = 0


class Invoices:
    """Deduplicates on the key, as it promised."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.keys: list[str] = []

    def make(self, call: Any) -> Any:
        self.keys.append(call.key)
        following = self.script.pop(0) if self.script else None
        if callable(following):
            following = following()
        if isinstance(following, BaseException):
            raise following
        return following or {"id": call.key[:6]}


def one_invoice(invoices: Invoices, *, name: str = "one", deadline=None, **options: Any) -> None:
    values: dict[str, Any] = {"safety": "keyed", "scope": "tenant", "name": "invoice", "retry": AT_ONCE} | options

    @tool(**values)
    def invoice(call, *, amount: int = 1):
        return invoices.make(call)

    @step(id="a", retry=AT_ONCE)
    def a(run: Any):
        return run.call(invoice, resource="order 7", amount=1 + run.state.n)["id"]

    workflow(name=name, version=1, state=Facts, deadline=deadline)(type("One", (), {"a": a}))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def sound(engine) -> None:
    checks = [check for check in CHECKS if check.name != "queued_run_has_a_living_worker_that_knows_it"]
    found = examine(engine.worker.database, checks=checks, grace_seconds=0.0)
    assert [(f.check.name, f.sample) for f in found.broken] == []


def asking(engine, *, state: str = "waiting", **options: Any) -> Run:
    """A second run that asks for the same thing while the first is at it."""
    run = engine.start("one", **options)
    engine.another_worker().drain()
    run.refresh_from_db()
    assert run.state == state, run.error_message
    return run


def test_run_that_asks_while_another_is_at_it_waits_and_gets_its_result(engine):
    invoices = Invoices()
    one_invoice(invoices)
    second: list[Run] = []
    invoices.script = [lambda: second.append(asking(engine))]
    first = engine.run("one")
    engine.drain()
    second[0].refresh_from_db()
    assert (second[0].state, output(second[0])) == ("succeeded", output(first))
    assert len(invoices.keys) == 1
    assert second[0].wake_cause == "turn"
    assert IdempotencyRecord.objects.get().reused == 1
    assert Wait.objects.get(kind="turn").correlation == f"effect:{IdempotencyRecord.objects.get().pk}"
    sound(engine)


def test_result_is_there_before_the_first_runs_step_has_ended(engine):
    invoices = Invoices()
    states = []

    @tool(safety="keyed", scope="tenant", name="invoice")
    def invoice(call):
        return invoices.make(call)

    @workflow(name="one", version=1, state=Facts)
    class One:
        @step
        def a(run: Any):
            run.call(invoice, resource="order 7")
            if run.state.n == 0:
                other = engine.start("one", {"n": 1})
                engine.another_worker().drain()
                states.append(Run.objects.get(pk=other.pk).state)

    engine.run("one")
    assert states == ["succeeded"]
    assert len(invoices.keys) == 1


def test_conflict_is_a_conflict_while_the_first_is_still_at_it(engine):  # C029
    invoices = Invoices()
    one_invoice(invoices)
    others: list[Run] = []

    def meanwhile():
        run = engine.start("one", {"n": 5})
        engine.another_worker().drain()
        run.refresh_from_db()
        others.append(run)

    invoices.script = [meanwhile]
    engine.run("one")
    assert (others[0].state, others[0].error_class) == ("failed", EffectConflict.__module__ + ".EffectConflict")
    assert "effect_conflict" in events_of(others[0])
    assert len(invoices.keys) == 1


def test_refusal_answers_everybody(engine):
    invoices = Invoices()
    one_invoice(invoices)
    second: list[Run] = []

    def meanwhile():
        second.append(asking(engine))
        return Refused("no such order")

    invoices.script = [meanwhile]
    engine.run("one")
    engine.drain()
    second[0].refresh_from_db()
    assert (second[0].state, second[0].error_class) == ("failed", "durableops.errors.Refused")
    assert len(invoices.keys) == 1


def test_other_tenants_have_an_invoice_of_their_own(engine):
    invoices = Invoices()
    one_invoice(invoices)
    invoices.script = [lambda: asking(engine, state="succeeded", tenant=make_tenant("other")) and None]
    engine.run("one")
    assert len(set(invoices.keys)) == 2


# The first one is gone.


def test_exactly_one_other_takes_over_with_the_same_key_when_the_first_is_gone(engine):  # C034
    invoices = Invoices()
    one_invoice(invoices)
    others: list[Run] = []

    def lose():
        others.extend(asking(engine) for _ in range(3))
        engine.lose_worker()

    invoices.script = [lose]
    first = engine.start("one")
    engine.worker.drain()
    # The first one is in the queue again, and nobody may take it: somebody paused it.
    commands.pause(first.pk, tenant=engine.tenant, actor="ann", reason="to see")
    engine.rounds()
    engine.drain()
    for run in others:
        run.refresh_from_db()
    assert [run.state for run in others] == ["succeeded"] * 3
    assert len(invoices.keys) == 2
    assert len(set(invoices.keys)) == 1
    effect = IdempotencyRecord.objects.get()
    assert (effect.state, effect.attempts, effect.run_id in {run.pk for run in others}) == ("succeeded", 2, True)
    taken = RunEvent.objects.get(event="effect_taken_over")
    assert (taken.run_id, taken.data["from_run"]) == (effect.run_id, str(first.pk))
    sound(engine)
    commands.resume(first.pk, tenant=engine.tenant, actor="ann", reason="go on")
    engine.drain()
    first.refresh_from_db()
    assert (first.state, output(first)) == ("succeeded", output(others[0]))
    assert len(invoices.keys) == 2


def test_run_that_comes_back_to_its_effect_goes_on_itself(engine):
    invoices = Invoices()
    one_invoice(invoices)
    others: list[Run] = []

    def lose():
        others.append(asking(engine))
        engine.lose_worker()

    invoices.script = [lose]
    first = engine.start("one")
    engine.worker.drain()
    engine.drain()
    engine.drain()
    first.refresh_from_db()
    others[0].refresh_from_db()
    assert (first.state, others[0].state) == ("succeeded", "succeeded")
    assert IdempotencyRecord.objects.get().run_id == first.pk
    assert not RunEvent.objects.filter(event="effect_taken_over").exists()
    assert len(set(invoices.keys)) == 1


def test_first_run_that_failed_leaves_it_to_whoever_asks_while_the_key_is_remembered(engine):
    invoices = Invoices()
    one_invoice(invoices, key_window=timedelta(hours=24))
    others: list[Run] = []

    def meanwhile():
        others.append(asking(engine))
        return ValueError("half an answer")

    invoices.script = [meanwhile, ValueError("again"), ValueError("again"), ValueError("again")]
    first = engine.run("one")
    for _ in range(6):
        engine.go_on(first)
    assert first.state == "failed"
    engine.rounds()
    engine.drain()
    others[0].refresh_from_db()
    assert others[0].state == "succeeded"
    assert Doubt.objects.get().settled_as == "sent_again"
    assert len(set(invoices.keys)) == 1
    sound(engine)


def test_past_the_window_everybody_waits_for_a_person_and_gets_what_they_said(engine):
    invoices = Invoices()
    one_invoice(invoices, key_window=timedelta(hours=24))
    others: list[Run] = []

    def lose():
        others.append(asking(engine))
        engine.lose_worker()

    invoices.script = [lose]
    first = engine.start("one")
    engine.worker.drain()
    IdempotencyRecord.objects.update(window_ends_at=now() - timedelta(hours=12))
    engine.drain()
    engine.rounds()
    engine.drain()
    first.refresh_from_db()
    others[0].refresh_from_db()
    assert (first.state, others[0].state) == ("in_doubt", "waiting")
    doubt = Doubt.objects.select_related("tenant").get()
    said = Settlement(how="happened", result={"id": "I-1"}, has_result=True)
    settling.settle(doubt.pk, tenant=doubt.tenant, actor="ann", reason="asked", settlement=said)
    engine.drain()
    assert [output(run) for run in (first, others[0])] == ["I-1", "I-1"]
    assert len(invoices.keys) == 1


def test_asker_that_nobody_told_is_found_by_the_sweep(engine):
    effect = make_effect(make_run(state="succeeded"), state="succeeded", scope="tenant", result="1")
    asker = make_run(state="waiting")
    make_wait(asker, kind="turn", name=effect.tool, correlation=f"effect:{effect.pk}")
    engine.rounds()
    assert Run.objects.get(pk=asker.pk).state == "queued"


def test_of_those_who_wait_for_what_nobody_is_at_one_is_woken(engine):
    effect = make_effect(make_run(paused=True, paused_by="ann"), scope="tenant")
    askers = [make_run(state="waiting") for _ in range(3)]
    for asker in askers:
        make_wait(asker, kind="turn", name=effect.tool, correlation=f"effect:{effect.pk}")
    engine.rounds()
    assert [Run.objects.get(pk=asker.pk).state for asker in askers] == ["queued", "waiting", "waiting"]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_fifty_simultaneous_first_calls_reach_the_downstream_once(engine, kind):  # C028
    arrived, guard = [], threading.Lock()

    def note(call: Any) -> dict[str, str]:
        with guard:
            arrived.append(call.key)
        return {"id": "I-1"}

    if kind == "plain":

        @tool(safety="keyed", scope="tenant", name="invoice")
        def invoice(call):
            threading.Event().wait(0.2)
            return note(call)

        @workflow(name="one", version=1, state=Facts)
        class One:
            @step
            def a(run: Any):
                return run.call(invoice, resource="order 7")["id"]

    else:
        import asyncio

        @tool(safety="keyed", scope="tenant", name="invoice")
        async def invoice_async(call):
            await asyncio.sleep(0.2)
            return note(call)

        @workflow(name="one", version=1, state=Facts)
        class Other:
            @step
            async def a(run: Any):
                return (await run.call(invoice_async, resource="order 7"))["id"]

    from tests.fixtures.engine import Background, Worker

    runs = [engine.start("one") for _ in range(50)]
    workers = [Worker(places=8) for _ in range(3)]
    try:
        for one in [Background(worker.drain) for worker in workers]:
            one.result(60)
        for _ in range(20):
            engine.rounds()
            engine.drain()
            if not Run.objects.exclude(state="succeeded").exists():
                break
    finally:
        for worker in workers:
            worker.close()
    assert {output(run) for run in runs} == {"I-1"}
    assert len(arrived) == 1
    assert IdempotencyRecord.objects.get().reused == 49
    sound(engine)

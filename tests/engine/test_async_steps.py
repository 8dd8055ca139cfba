"""`async def` steps: the same promises, awaited; several things at once in one step lose nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from durableops import Page, Retry, State, step, tool, workflow
from durableops.engine.inbound import send_event
from runs.models import Checkpoint, IdempotencyRecord, LogLine, Run, RunEvent

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=[1, 16], ids=["one place", "sixteen places"])
def places(request: pytest.FixtureRequest) -> int:
    return int(request.param)


AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Count(State):
    n: int = 0


def one_step(function, **options):
    options = {"retry": AT_ONCE} | options
    workflow(name="one", version=1, state=Count)(type("One", (), {"a": step(id="a", **options)(function)}))


def output(run: Run) -> Any:
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_async_step_calls_waits_decides_and_pages(engine):
    @tool(safety="keyed", name="send")
    async def send(call, *, n: int):
        await asyncio.sleep(0)
        return n * 2

    @tool(safety="read", name="look")
    def look(call):
        return "sync tools too"

    async def ask(x: int) -> int:
        return x + 1

    async def read(at: int | None) -> Page:
        return Page(items=[at or 0], next_cursor=(at or 0) + 1 if (at or 0) < 2 else None)

    async def a(run: Any):
        run.state.n += 1
        decided = await run.decide("d", {"x": 1}, ask)
        many = await run.call_many(send, [{"resource": f"r{n}", "n": n} for n in range(4)])
        seen = [page[0] async for page in run.pages(read)]
        looked = await run.call(look)
        event = await run.wait_for("go")
        return [decided, many, seen, looked, event]

    one_step(a)
    run = engine.run("one")
    assert run.state == "waiting"
    send_event("go", tenant=engine.tenant, actor="x", payload=9)
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded", run.error_message
    found = output(run)
    assert (found[0], found[1], found[3], found[4]) == (2, [0, 2, 4, 6], "sync tools too", 9)


def test_async_step_past_its_timeout_is_cut_off(engine):
    async def a(run: Any):
        if run.attempt == 1:
            await asyncio.Event().wait()
        return run.attempt

    one_step(a, timeout=0.05)
    run = engine.run("one")
    assert output(run) == 2
    assert RunEvent.objects.filter(run=run, event="step_timeout").count() == 1


def test_async_step_that_swallows_its_cut_off_is_timed_out_all_the_same(engine):  # C050
    async def a(run: Any):
        if run.attempt == 1:
            try:
                await asyncio.Event().wait()
            except BaseException:
                return "swallowed"
        return run.attempt

    one_step(a, timeout=0.05)
    run = engine.run("one")
    assert output(run) == 2


def test_async_tool_past_its_timeout_is_cut_off_and_told(engine):
    @tool(safety="keyed", name="send", timeout=0.05, retry=AT_ONCE)
    async def send(call):
        if call.attempt == 1:
            await asyncio.Event().wait()
        return call.attempt

    async def a(run: Any):
        return await run.call(send, resource="x")

    one_step(a)
    run = engine.run("one")
    assert output(run) == 2
    assert RunEvent.objects.get(run=run, event="call_timeout").data["limit_seconds"] == 0.05


def test_async_tool_of_a_plain_step_is_awaited_for_it(engine):
    @tool(safety="keyed", name="send")
    async def send(call, *, n: int):
        return n

    one_step(lambda run: run.call_many(send, [{"resource": str(n), "n": n} for n in range(5)]))
    assert output(engine.run("one")) == [0, 1, 2, 3, 4]


def test_several_calls_awaited_together_are_each_made_once_and_recorded(engine):
    """`asyncio.gather` is how people write it: intents, results and log lines of one must not lose those of another."""
    desk = []

    @tool(safety="keyed", name="send")
    async def send(call):
        desk.append(call.resource)
        await asyncio.sleep(0.001 * (len(desk) % 5))
        return call.resource

    async def one(run, n):
        run.log(f"before {n}")
        found = await run.call(send, resource=f"r{n}")
        run.log(f"after {n}")
        return found

    async def a(run: Any):
        return await asyncio.gather(*(one(run, n) for n in range(20)))

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded", run.error_message
    assert output(run) == [f"r{n}" for n in range(20)]
    assert sorted(desk) == sorted(f"r{n}" for n in range(20))
    assert set(IdempotencyRecord.objects.values_list("state", flat=True)) == {"succeeded"}
    assert IdempotencyRecord.objects.count() == 20
    assert sorted(LogLine.objects.values_list("message", flat=True)) == sorted(
        f"{word} {n}" for word in ("before", "after") for n in range(20)
    )


def test_step_that_waits_while_other_calls_are_under_way_waits_and_keeps_their_results(engine):
    @tool(safety="keyed", name="send")
    async def send(call):
        await asyncio.sleep(0.01)
        return 1

    async def a(run: Any):
        return await asyncio.gather(run.call(send, resource="x"), run.wait_for("go"))

    one_step(a)
    run = engine.run("one")
    assert run.state == "waiting"
    send_event("go", tenant=engine.tenant, actor="x", payload=2)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, output(run)) == ("succeeded", [1, 2])
    assert IdempotencyRecord.objects.get().state == "succeeded"


def test_error_of_an_async_step_is_retried_like_any_other(engine):
    async def a(run: Any):
        if run.attempt < 3:
            raise ValueError
        return run.attempt

    one_step(a)
    assert output(engine.run("one")) == 3

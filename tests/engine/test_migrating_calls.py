"""Calls of old versions under new code: found by their new names wherever they were made, never sent twice, undone."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from durableops import Migrated, Retry, State, migration, step, tool, workflow
from durableops.authoring.context import Page
from durableops.engine import branching, commands, compensating, guard, reviewing
from durableops.engine.compensation import undoing
from durableops.engine.inbound import send_event
from durableops.errors import TransitionRefused
from runs.models import Compensation, IdempotencyRecord, Run
from tests.factories import make_effect, make_run, make_tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
ONCE = Retry(max_attempts=1)
WHY: dict[str, Any] = {"actor": "rita", "reason": "looked"}


class Nothing(State):
    """These runs know nothing."""


class Shop:
    """What was sent, and undone, under which tool's name; and a deploy of one version after the other."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.sent: list[str] = []
        self.keys: list[str] = []
        self.undone: list[str] = []
        self.closed = False

    def tool(self, name: str, **options: Any) -> Any:
        @tool(safety="keyed", name=name, retry=ONCE, timeout=5, **options)
        def send(call: Any) -> str:
            self.sent.append(call.resource)
            self.keys.append(call.key)
            return str(call.resource)

        return send

    def undoing(self, name: str) -> Any:
        @tool(safety="keyed", name=name, retry=ONCE, timeout=5)
        def undo(call: Any) -> str:
            self.undone.append(call.resource)
            return "undone"

        return undo

    def deploy(self, version: int, steps: dict[str, Any], tools: tuple[Any, ...], says: Any = None) -> None:
        """Only this version is known from now on; `says` is what its migration answers."""
        made = workflow(name="shop", version=version, state=Nothing, migrate="automatic")(
            type("Shop", (), {
                name: step(id=name, retry=ONCE, tools=[*tools])(function) for name, function in steps.items()
            })
        )  # fmt: skip
        if says is not None:

            @migration(made, from_version=version - 1)
            def moved(old: dict[str, Any]) -> Any:
                return Migrated(state=old, **says)

    def forget(self) -> None:
        self.registry.clear()
        undoing.install()


@pytest.fixture
def shop(own_registry) -> Shop:
    undoing.install()
    return Shop(own_registry)


def pages(count: int) -> Any:
    def read(cursor: int | None) -> Page | None:
        at = cursor or 0
        return None if at == count else Page(items=[at], next_cursor=at + 1)

    return read


def paged(shop: Shop, send: Any) -> Any:
    def load(run: Any) -> None:
        run.call(send, resource="header")
        for [item] in run.pages(pages(3)):
            if shop.closed and item == 2:
                raise ValueError("the shop is closed")
            run.call(send, resource=f"item {item}")

    return load


def plan_of(run: Run) -> guard.Plan:
    with connection.cursor() as cursor:
        return guard.plan(cursor, "migrate", run.pk)


@pytest.fixture
def halfway(engine, shop) -> Run:
    """A run of version 1 that failed on its third page, and was retried while nobody could take it."""
    send = shop.tool("send")
    shop.deploy(1, {"load": paged(shop, send)}, (send,))
    shop.closed = True
    run = engine.run("shop")
    assert run.state == "failed"
    assert shop.sent == ["header", "item 0", "item 1"]
    commands.retry(run.pk, tenant=engine.tenant, **WHY)
    shop.closed = False
    shop.forget()
    return run


def test_call_above_the_pages_is_found_by_its_new_names_whenever_it_was_committed(engine, shop, halfway):
    post = shop.tool("post")
    says = {"steps": {"load": "ingest"}, "effects": {"load/send": "post"}}
    shop.deploy(2, {"ingest": paged(shop, post)}, (post,), says)
    engine.drain()
    halfway.refresh_from_db()
    assert (halfway.state, halfway.plan.version) == ("succeeded", 2)
    assert shop.sent == ["header", "item 0", "item 1", "item 2"]


def test_call_above_the_pages_that_nothing_takes_up_stops_the_migration(engine, shop, halfway):
    post = shop.tool("post")
    shop.deploy(2, {"load": paged(shop, post)}, (post,), {})
    with pytest.raises(TransitionRefused, match="it would be sent again"):
        reviewing.migrate(halfway.pk, tenant=engine.tenant, **WHY)
    assert len(shop.sent) == 3


def test_plan_tells_that_a_call_above_the_pages_goes_out_anew_if_it_is_left_behind(engine, shop, halfway):
    post = shop.tool("post")
    shop.deploy(2, {"load": paged(shop, post)}, (post,), {"effects": {"load/send": None}})
    [line] = [one for one in plan_of(halfway).lines if one.category == "anew"]
    assert line.samples[0] == "header"


def test_calls_ahead_of_a_run_that_went_back_are_found_by_their_new_names(engine, shop):
    send = shop.tool("send")

    def steps(using: Any) -> dict[str, Any]:
        def first(run: Any) -> None:
            run.wait_for("go")

        def second(run: Any) -> None:
            run.call(using, resource="order")
            run.wait_for("go")

        return {"first": first, "second": second}

    shop.deploy(1, steps(send), (send,))
    run = engine.run("shop")
    send_event("go", tenant=engine.tenant, actor="ann", payload=None)
    engine.drain()
    assert shop.sent == ["order"]
    branching.retry_from(run.pk, tenant=engine.tenant, seq=0, plan_hash=None, **WHY)
    engine.drain()
    shop.forget()
    post = shop.tool("post")
    shop.deploy(2, steps(post), (post,), {"effects": {"send": "post"}})
    reviewing.migrate(run.pk, tenant=engine.tenant, **WHY)
    send_event("go", tenant=engine.tenant, actor="ann", payload=None)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.plan.version) == ("succeeded", 2)
    assert shop.sent == ["order"]


def test_calls_keep_their_key_and_are_found_through_migrations_one_after_the_other(engine, shop):
    def steps(using: Any, *, name: str) -> dict[str, Any]:
        def prepare(run: Any) -> None:
            run.call(using, resource="prepared")

        def load(run: Any) -> None:
            run.call(using, resource="order")
            run.wait_for("go")

        return {"prepare": prepare, name: load}

    made = [shop.tool("send", compensate=shop.undoing("unsend"))]
    shop.deploy(1, steps(made[0], name="load"), (made[0],))
    run = engine.run("shop")
    keys = list(shop.keys)
    for version, (old, new), (was, now) in ((2, ("load", "ingest"), ("send", "post")),
                                            (3, ("ingest", "enter"), ("post", "put"))):  # fmt: skip
        shop.forget()
        using = shop.tool(now, compensate=shop.undoing(f"un{now}"))
        shop.deploy(version, steps(using, name=new), (using,), {"steps": {old: new}, "effects": {was: now}})
        reviewing.migrate(run.pk, tenant=engine.tenant, **WHY)
    send_event("go", tenant=engine.tenant, actor="ann", payload=None)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.plan.version, run.lineage) == ("succeeded", 3, 3)
    assert shop.sent == ["prepared", "order"]
    found = IdempotencyRecord.objects.filter(run=run).order_by("id")
    assert list(found.values_list("step_id", "tool", "key")) == [("prepare", "put", keys[0]), ("enter", "put", keys[1])]
    compensating.compensate(run.pk, tenant=engine.tenant, **WHY)
    engine.drain()
    assert shop.undone == ["order", "prepared"], "newest first, also what a committed step of version 1 had done"


def test_call_that_was_left_behind_stops_no_later_migration_and_no_plan_counts_it(engine, shop):
    def steps(using: Any) -> dict[str, Any]:
        def load(run: Any) -> None:
            run.call(using, resource="order")
            run.wait_for("go")

        return {"load": load}

    send = shop.tool("send")
    shop.deploy(1, steps(send), (send,))
    run = engine.run("shop")
    for version, name, says in ((2, "post", {"load/send": None}), (3, "put", {"load/post": "put"})):
        shop.forget()
        using = shop.tool(name)
        shop.deploy(version, steps(using), (using,), {"effects": says})
        reviewing.migrate(run.pk, tenant=engine.tenant, **WHY)
        if version == 2:
            assert IdempotencyRecord.objects.get(run=run).left_behind
            make_effect(run, state="succeeded", tool="post", step_id="load", resource="other")
    assert [(one.tool, one.calls) for one in plan_of_retry(run).lines] == [("put", 1)]
    send_event("go", tenant=engine.tenant, actor="ann", payload=None)
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.plan.version) == ("succeeded", 3)
    assert shop.sent == ["order", "order"]


def plan_of_retry(run: Run) -> guard.Plan:
    with connection.cursor() as cursor:
        return guard.plan(cursor, "retry", run.pk)


def test_what_a_tool_did_that_no_code_knows_any_more_is_undone_by_hand(tenant, clean_queue, own_registry):
    undoing.install()
    run = make_run(state="failed", tenant=make_tenant())
    make_effect(run, state="succeeded", tool="retired", resource="order")
    make_effect(run, state="succeeded", tool="look", safety="read")
    compensating.compensate(run.pk, tenant=run.tenant, **WHY)
    one = Compensation.objects.get()
    assert (one.effect.tool, one.how, one.state) == ("retired", "person", "approved")
    assert "Nothing says how retired is undone" in one.instructions

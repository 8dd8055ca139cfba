"""Effects on our own database: the change and its record commit together, and the record answers on re-entry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction

from durableops import Retry, State, step, tool, workflow
from runs.models import Checkpoint, IdempotencyRecord, Run, RunEvent, Tenant

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

AT_ONCE = Retry(max_attempts=3, first_delay=0.0, jitter=0.0)


class Nothing(State):
    pass


@pytest.fixture
def add(own_registry):
    @tool(safety="local", name="add")
    def add(call, *, slug: str, fail: bool = False, result: object = None):
        Tenant.objects.create(slug=slug, name=slug)
        if fail:
            raise ValueError("after the change")
        return {"slug": slug} if result is None else result

    return add


def one_step(function, **options):
    options = {"retry": AT_ONCE} | options
    workflow(name="one", version=1, state=Nothing)(type("One", (), {"a": step(id="a", **options)(function)}))


def slugs() -> list[str]:
    return list(Tenant.objects.exclude(slug="acme").order_by("slug").values_list("slug", flat=True))


def output(run: Any):
    return json.loads(Checkpoint.objects.get(run=run, kind="finish").output or "null")


def test_change_and_record_commit_together(engine, add):
    one_step(lambda run: run.call(add, resource="x", slug="x")["slug"])
    run = engine.run("one")
    assert output(run) == "x"
    assert slugs() == ["x"]
    effect = IdempotencyRecord.objects.get()
    assert (effect.state, effect.safety, effect.result) == ("succeeded", "local", '{"slug":"x"}')


def test_record_answers_when_the_step_is_entered_again(engine, add):
    def a(run: Any):
        found = run.call(add, resource="x", slug="x")
        if run.attempt < 3:
            raise ValueError("again")
        return found["slug"]

    one_step(a)
    run = engine.run("one")
    assert output(run) == "x"
    assert slugs() == ["x"]
    assert run.effects_avoided == 2


def test_change_of_a_tool_that_fails_is_undone_and_leaves_no_record(engine, add):
    one_step(lambda run: run.call(add, resource="x", slug="x", fail=True))
    run = engine.run("one")
    assert run.state == "failed"
    assert slugs() == []
    assert not IdempotencyRecord.objects.exists()


def test_change_is_undone_when_its_result_cannot_be_kept(engine, add):
    one_step(lambda run: run.call(add, resource="x", slug="x", result="\ud800"))
    run = engine.run("one")
    assert run.state == "failed"
    assert slugs() == []


def test_change_is_not_made_twice_when_the_worker_is_lost_right_after_it(engine, add):
    """The record is committed with the change: the second worker finds it."""

    def a(run: Any):
        found = run.call(add, resource="x", slug="x")
        if run.attempt == 1:
            engine.lose_worker()
            run.progress(1)
        return found["slug"]

    one_step(a)
    run = engine.start("one")
    engine.worker.drain()
    engine.drain()
    run.refresh_from_db()
    assert run.state == "succeeded"
    assert slugs() == ["x"]


def test_each_of_many_is_made_once(engine, add):
    def a(run: Any):
        run.call_many(add, [{"resource": slug, "slug": slug} for slug in ("x", "y", "z")])
        if run.attempt == 1:
            raise ValueError("again")
        return 1

    one_step(a)
    engine.run("one")
    assert slugs() == ["x", "y", "z"]


def test_other_request_for_a_taken_slot_is_a_conflict_that_changes_nothing_and_is_shown(engine, own_registry):
    @tool(safety="local", name="add", scope="tenant")
    def add(call, *, slug: str):
        Tenant.objects.create(slug=slug, name=slug)

    one_step(lambda run: run.call(add, resource="same", slug=run.labels["slug"]) and None)
    engine.run("one", labels={"slug": "x"})
    run = engine.run("one", labels={"slug": "y"})
    assert run.state == "failed"
    assert run.error_class == "durableops.errors.EffectConflict"
    assert slugs() == ["x"]
    assert RunEvent.objects.filter(run=run, event="effect_conflict").exists()


def test_step_that_calls_it_inside_a_transaction_of_its_own_is_told_that_it_must_not(engine, add):
    """The author's rollback would undo the change and not the promise; its row lock would block our own commit."""

    def a(run: Any):
        with transaction.atomic():
            run.call(add, resource="x", slug="x")

    one_step(a, retry=Retry(max_attempts=1))
    run = engine.run("one")
    assert run.state == "failed"
    assert "transaction" in run.error_message
    assert slugs() == []


def test_connection_that_the_step_left_broken_does_not_reach_the_engine(engine, own_registry):
    def a(run: Any):
        if run.attempt == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        return 1

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"


def test_transaction_that_the_step_left_open_does_not_reach_the_engine(engine, own_registry):
    def a(run: Any):
        connection.set_autocommit(False)
        Tenant.objects.create(slug="half", name="half")

    one_step(a)
    run = engine.run("one")
    assert run.state == "succeeded"
    assert slugs() == []


@pytest.mark.parametrize(("flag", "state"), [("cancel_requested", "cancelled"), ("paused", "queued")])
def test_nothing_is_changed_once_a_person_stopped_the_run(engine, add, flag, state):
    def a(run: Any):
        Run.objects.update(**{flag: True})
        run.call(add, resource="x", slug="x")

    one_step(a)
    run = engine.run("one")
    assert run.state == state
    assert slugs() == []


def test_async_tool_works_too(engine, own_registry):
    @tool(safety="local", name="later")
    async def later(call):
        return 7

    one_step(lambda run: run.call(later, resource="x"))
    assert output(engine.run("one")) == 7

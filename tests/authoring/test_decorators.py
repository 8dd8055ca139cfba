"""What a decorated name stands for, and which tools a step is found to use."""

from __future__ import annotations

from datetime import timedelta

import pytest

from durableops.authoring import registry
from durableops.authoring.decorators import migration, step, tool, workflow
from durableops.authoring.definitions import (
    MigrationDefinition,
    StepDefinition,
    ToolDefinition,
    WorkflowDefinition,
)
from durableops.authoring.policies import Budget, Retry
from durableops.authoring.state import State
from tests.authoring.conftest import Author


class Kept(State):
    count: int = 0


def test_tool_keeps_its_options_and_stays_callable() -> None:
    @tool(
        safety="keyed",
        timeout=30,
        retry=Retry(max_attempts=4),
        key_window=timedelta(hours=24),
        resource_id="id",
        scope="tenant",
    )
    def create_ticket(call: str, *, title: str) -> dict[str, str]:
        return {"id": call, "title": title}

    assert isinstance(create_ticket, ToolDefinition)
    assert create_ticket("c1", title="x") == {"id": "c1", "title": "x"}
    assert (create_ticket.name, create_ticket.safety, create_ticket.scope) == ("create_ticket", "keyed", "tenant")
    assert (create_ticket.timeout, create_ticket.retry.max_attempts) == (30, 4)
    assert (create_ticket.key_window, create_ticket.resource_id) == (timedelta(hours=24), "id")
    assert create_ticket.required == {"title"}
    assert registry.tool("create_ticket") is create_ticket


def test_coroutine_functions_are_marked() -> None:
    @tool(safety="read")
    async def look(call: object) -> None: ...

    @step
    async def a(run: object) -> None: ...

    assert look.is_async
    assert a.is_async


def test_step_is_declared_bare_or_with_options() -> None:
    @step
    def bare(run: object) -> str:
        return f"ran {run}"

    @step(id="other", version=2, timeout=None, retry=Retry(max_attempts=1))
    def named(run: object) -> None: ...

    assert isinstance(bare, StepDefinition)
    assert bare("r1") == "ran r1"
    assert (bare.id, bare.version, bare.timeout) == ("bare", 1, 3600)
    assert (named.id, named.version, named.timeout, named.retry.max_attempts) == ("other", 2, None, 1)


def test_workflow_collects_its_steps_in_the_order_written() -> None:
    @workflow(name="w", version=2, state=Kept, deadline=timedelta(days=7), budget=Budget(calls=10), max_recoveries=1)
    class Example:
        @step
        def zebra(run: object) -> None: ...

        def not_a_step(self) -> None: ...

        @step
        def apple(run: object) -> None: ...

    example = registry.workflow("w")
    assert isinstance(Example, WorkflowDefinition)
    assert example is Example
    assert [each.id for each in example.steps] == ["zebra", "apple"]
    assert (example.name, example.version, example.state, example.schema_version) == ("w", 2, Kept, 1)
    assert (example.deadline, example.max_recoveries) == (timedelta(days=7), 1)
    assert example.budget == Budget(calls=10)
    assert example.cls.__name__ == "Example"


def test_workflow_takes_another_order_by_id() -> None:
    @workflow(name="w", version=1, state=Kept, steps=["second", "first"])
    class Example:
        @step
        def first(run: object) -> None: ...

        @step
        def second(run: object) -> None: ...

    assert [each.id for each in registry.workflow("w").steps] == ["second", "first"]


def test_migration_is_registered_and_stays_callable() -> None:
    @workflow(name="w", version=3, state=Kept)
    class Example:
        @step
        def a(run: object) -> None: ...

    @migration(Example, from_version=2)
    def renamed(old: dict[str, object]) -> dict[str, object]:
        return {"count": old["number"]}

    assert isinstance(renamed, MigrationDefinition)
    assert renamed({"number": 5}) == {"count": 5}
    assert registry.migrations("w") == (renamed,)
    assert (renamed.workflow, renamed.from_version, renamed.to_version) == ("w", 2, registry.workflow("w").version)


@pytest.mark.parametrize(
    ("body", "tools"),
    [
        ("run.call(one)", ["one"]),
        ("run.call(two)\n        run.call(one)", ["one", "two"]),
        ("[run.call(one) for _ in 'ab']", ["one"]),
        ("(lambda: (lambda: run.call(one))())()", ["one"]),
        ("helper(run)", ["two"]),
        ("chained(run)", ["two"]),
        ("chosen = one if run.id else two\n        run.call(chosen)", ["one", "two"]),
        ("pass", []),
        ("one = 5\n        print(one)", []),
        ("run.one(run.two)", []),
        ("print('one')", []),
    ],
)
def test_tools_of_a_step_are_those_its_code_refers_to(author: Author, body: str, tools: list[str]) -> None:
    module = author.write(f"""
@tool(safety="read")
def one(call): ...

def chained(run): helper(run)
def helper(run):
    chained
    run.call(two)

@workflow(name="w", version=1, state=Empty)
class Example:
    @step
    def a(run):
        {body}

@tool(safety="read")
def two(call): ...
""")
    assert [each.name for each in module.Example.step("a").tools] == tools


def test_tools_that_cannot_be_seen_are_named() -> None:
    @tool(safety="read")
    def hidden(call: object) -> None: ...

    @step(tools=[hidden])
    def a(run: object) -> None: ...

    assert a.tools == (hidden,)


def test_tools_of_an_enclosing_function_are_seen() -> None:
    @tool(safety="read")
    def enclosed(call: object) -> None: ...

    @step
    def a(run: object) -> None:
        run.call(enclosed)  # type: ignore[attr-defined]

    assert a.tools == (enclosed,)

"""Calls without a resource are found in the source where they can be seen, and only there."""

from __future__ import annotations

import pytest

from durableops.authoring import registry
from durableops.errors import DefinitionError
from tests.authoring.conftest import Author

TOOLS = """
@tool(safety="keyed")  # there
def create(call, *, title="", order=""): ...

@tool(safety="keyed", resource="order", name="pay")
def pay(call, *, order): ...

@tool(safety="read")
def look(call, *, title=""): ...

@workflow(name="w", version=1, state=Empty)
class One:
    @step
    def a(run):
"""


def with_line(line: str) -> str:
    return TOOLS + "\n".join(f"        {each}" for each in line.splitlines()) + "\n"


@pytest.mark.parametrize(
    "line",
    [
        "run.call(create, title='x')  # here",
        "run.call(create, resource='')  # here",
        "run.call(create, resource=None)  # here",
        "run.call(\n    create,  # just the tool\n)  ".replace("run.call(\n", "run.call(  # here\n"),
        "x = [run.call(create, title=t) for t in 'ab']  # here",
        "for t in 'ab':\n    if t:\n        run.call(create, title=t)  # here",
        "def inner():\n    run.call(create, title='x')  # here\ninner()",
        "run.poll(create, every=1, until=bool)  # here",
        "run.call_many(create, [dict(title='x')])  # here",
        "run.call_many(create, [dict(title=t) for t in 'ab'])  # here",
        "run.call_many(create, ({'title': t} for t in 'ab'))  # here",
        "run.call_many(create, [\n    {'resource': 'r'},\n    {'title': 't'},  # here\n])",
        "run.call_many(create, items=[{'resource': ''}])  # here",
    ],
)
def test_visible_call_without_resource_is_refused_at_its_line(author: Author, line: str) -> None:
    message = author.mistake(with_line(line))

    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert "calls tool 'create' without a resource" in message


@pytest.mark.parametrize(
    "line",
    [
        "run.call(create, resource=run.id, title='x')",
        "run.call(create, **run.input)",
        "run.call(pay, order='o')",
        "run.call(look, title='x')",
        "run.call_many(create, [dict(resource=t) for t in 'ab'])",
        "run.call_many(create, [{'resource': t, 'title': t} for t in 'ab'])",
        "run.call_many(create, [{**row} for row in run.input])",
        "run.call_many(create, [dict(row) for row in run.input])",
        "run.call_many(create, run.input)",
        "run.call_many(look, [dict(title='x')])",
        "create = look\nrun.call(create)",
        "print('call', create)",
    ],
)
def test_call_with_resource_or_out_of_sight_is_left_alone(author: Author, line: str) -> None:
    author.write(with_line(line))
    registry.check()


def test_async_steps_are_read_too(author: Author) -> None:
    body = TOOLS.replace("    def a(run):", "    async def a(run):")
    message = author.mistake(body + "        await run.call(create, title='x')  # here\n")
    assert message.startswith(author.place("here"))


def test_helper_of_the_same_module_is_read_too(author: Author) -> None:
    message = author.mistake("""
        @tool(safety="keyed")
        def create(call, *, title=""): ...

        def helper(run):
            run.call(create, title="x")  # here

        @workflow(name="w", version=1, state=Empty)
        class One:
            @step
            def a(run):
                helper(run)
    """)
    assert message.startswith(author.place("here"))


def test_tool_that_stands_below_the_workflow_is_found_at_start_up(author: Author) -> None:
    author.write("""
        @workflow(name="w", version=1, state=Empty)
        class One:
            @step
            def a(run):
                run.call(create, title="x")  # here

        @tool(safety="keyed")
        def create(call, *, title=""): ...
    """)
    for look_up in (registry.check, registry.workflows, lambda: registry.workflow("w")):
        with pytest.raises(DefinitionError) as caught:
            look_up()
        assert caught.value.detail.startswith(author.place("here"))


def test_tool_reached_through_its_module_is_seen(author: Author) -> None:
    author.write('@tool(safety="keyed")\ndef create(call, *, title=""): ...', name="my_tools")
    message = author.mistake("""
        import my_tools

        @workflow(name="w", version=1, state=Empty)
        class One:
            @step
            def a(run):
                run.call(my_tools.create, title="x")  # here
    """)
    assert message.startswith(author.place("here"))

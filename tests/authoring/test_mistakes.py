"""Every mistake in a declaration is refused at start-up, and the message names file and line.

The marks (`# here`, `# there`) stand on the lines that the message must name.
"""

from __future__ import annotations

import pytest

from durableops.authoring import registry
from durableops.errors import DefinitionError
from tests.authoring.conftest import Author


def test_two_workflows_of_one_name_and_version_name_both_places(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty)  # there
        class One:
            @step
            def a(run): ...

        @workflow(name="w", version=1, state=Empty)  # here
        class Two:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert "workflow 'w' version 1 is declared twice" in message


def test_two_steps_of_one_id_name_both_places(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty)
        class One:
            @step(id="a")  # there
            def first(run): ...
            @step(id="a")  # here
            def second(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert "step 'a' is declared twice" in message


def test_second_function_of_one_name_does_not_silently_replace_the_first(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty)
        class One:
            @step  # there
            def a(run): ...
            @step(timeout=5)  # here
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message


def test_two_tools_of_one_name_name_both_files(author: Author) -> None:
    author.write('@tool(safety="read")  # there\ndef look(call): ...', name="first_app")
    with pytest.raises(DefinitionError) as caught:
        author.write('@tool(safety="read")  # here\ndef look(call): ...', name="second_app")
    assert caught.value.detail.startswith(author.place("here", name="second_app"))
    assert author.place("there", name="first_app") in caught.value.detail


def test_two_migrations_from_one_version_name_both_places(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=3, state=Empty)
        class One:
            @step
            def a(run): ...

        @migration(One, from_version=2)  # there
        def first(old): return old

        @migration(One, from_version=2)  # here
        def second(old): return old
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message


def test_workflow_without_steps(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty)  # here
        class One:
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert "has no steps" in message


def test_inherited_steps(author: Author) -> None:
    message = author.mistake("""
        class Base:
            @step
            def a(run): ...

        @workflow(name="w", version=1, state=Empty)  # here
        class One(Base):
            @step
            def b(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert "inherits steps from Base" in message


def test_order_with_an_unknown_step(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty, steps=["a", "c"])  # here
        class One:
            @step
            def a(run): ...
            @step
            def b(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert "unknown step 'c'; it has: a, b" in message


def test_order_that_leaves_a_step_out_names_the_step(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty, steps=["a"])  # here
        class One:
            @step
            def a(run): ...
            @step  # there
            def b(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message


@pytest.mark.parametrize("state", ["dict", "None", "State", "Empty()", "Own"])
def test_state_that_is_no_state(author: Author, state: str) -> None:
    message = author.mistake(f"""
        class Own: ...  # there

        @workflow(name="w", version=1, state={state})  # here
        class One:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert "give a subclass of durableops.State" in message
    assert state != "Own" or author.place("there") in message


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("f: typing.TextIO", "is a TextIO"),
        ("f: collections.abc.Callable[[int], int]", "Callable"),
        ("f: Own | None = None", "is a Own"),
        ("f: list[dict[str, Own]]", "is a Own"),
        ("f: object", "is a object"),
        ("f: re.Pattern[str]", "is a Pattern"),
        ("f: collections.Counter[str]", "Counter"),
        ("f: collections.abc.Sequence[int]", "Sequence"),
        ("f: Point", "is a Point"),
        ("f: Plain", "is a Plain"),
        ("f: dict[tuple[int, int], str]", "as dictionary key"),
        ("f: pydantic.SecretStr", "is a SecretStr"),
        ("f: int = pydantic.Field(alias='g')", "has an alias"),
        ("f: int = pydantic.Field(exclude=True, default=1)", "is excluded"),
    ],
)
def test_field_that_json_would_not_give_back_names_its_own_line(author: Author, field: str, why: str) -> None:
    message = author.mistake(f"""
        import collections, collections.abc, re, typing, pydantic
        from dataclasses import dataclass

        class Own:
            @classmethod
            def __get_pydantic_core_schema__(cls, source, handler):
                from pydantic_core import core_schema
                return core_schema.is_instance_schema(cls)

        @dataclass
        class Point:
            x: int

        class Plain(pydantic.BaseModel):
            x: int

        class Kept(State):
            model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
            good: int = 1
            {field}  # there

        @workflow(name="w", version=1, state=Kept)  # here
        class One:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert why in message


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("_hidden: int = 1", "private attributes (_hidden)"),
        ("model_config = {'extra': 'ignore'}", "does not forbid unknown fields"),
        ("schema_version = 0", "schema_version=0"),
    ],
)
def test_state_that_would_lose_something_names_its_class(author: Author, line: str, why: str) -> None:
    message = author.mistake(f"""
        class Kept(State):  # there
            {line}

        @workflow(name="w", version=1, state=Kept)  # here
        class One:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert why in message


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("version=0", "version=0"),
        ("version=True", "version=True"),
        ("version=1, deadline=timedelta(0)", "above 0"),
        ("version=1, deadline=60", "give a timedelta"),
        ("version=1, budget=5", "give a Budget"),
        ("version=1, max_recoveries=-1", "max_recoveries=-1"),
        ("version=1, budget=Budget(calls=-1)", "calls=-1"),
        ("version=1, budget=Budget(tokens=1.5)", "whole number"),
        ("version=1, budget=Budget(money=float('nan'))", "money=nan"),
    ],
)
def test_options_of_a_workflow(author: Author, option: str, why: str) -> None:
    message = author.mistake(f"""
        @workflow(name="w", state=Empty, {option})  # here
        class One:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert why in message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 101, "a\\nb"])
def test_names_that_cannot_stand_in_urls_and_logs(author: Author, name: str) -> None:
    message = author.mistake(f"""
        @workflow(name="{name}", version=1, state=Empty)  # here
        class One:
            @step
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert "ASCII letters" in message


def test_deadline_that_no_single_attempt_can_meet_names_the_step(author: Author) -> None:
    message = author.mistake("""
        @workflow(name="w", version=1, state=Empty, deadline=timedelta(seconds=60))  # here
        class One:
            @step(timeout=61)  # there
            def a(run): ...
    """)
    assert message.startswith(author.place("here"))
    assert author.place("there") in message
    assert "deadline of 60 s" in message


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("@step(timeout=0)  # here\n    def a(run): ...", "above 0"),
        ("@step(timeout=-1)  # here\n    def a(run): ...", "above 0"),
        ("@step(timeout=float('nan'))  # here\n    def a(run): ...", "timeout=nan"),
        ("@step(timeout=timedelta(1))  # here\n    def a(run): ...", "give seconds"),
        ("@step(version=0)  # here\n    def a(run): ...", "version=0"),
        ("@step(retry=3)  # here\n    def a(run): ...", "give a Retry"),
        ("@step(tools=[print])  # here\n    def a(run): ...", "give a ToolDefinition"),
        ("@step(id='a b')  # here\n    def a(run): ...", "ASCII letters"),
        ("@step(retry=Retry(max_attempts=0))  # here\n    def a(run): ...", "max_attempts=0"),
        ("@step  # here\n    def a(): ...", "exactly one argument"),
        ("@step  # here\n    def a(self, run): ...", "exactly one argument"),
        ("@step  # here\n    def a(*, run): ...", "exactly one argument"),
        ("@step  # here\n    def a(run):\n        yield 1", "`yield`"),
        ("@step  # here\n    async def a(run):\n        yield 1", "`yield`"),
    ],
)
def test_steps(author: Author, step: str, why: str) -> None:
    message = author.mistake(f'\n@workflow(name="w", version=1, state=Empty)\nclass One:\n    {step}\n')
    assert message.startswith(author.place("here"))
    assert why in message


@pytest.mark.parametrize(
    ("options", "arguments", "why"),
    [
        ("safety='exactly-once'", "call", "choose one of read, local, keyed"),
        ("safety='outbox', destination='a:b'", "call", "ASCII letters"),
        ("safety='outbox', on_poison='drop'", "call", "choose one of hold, skip"),
        ("safety='outbox', deliver_within=timedelta(0)", "call", "above 0"),
        ("safety='outbox', deliver_within=60", "call", "give a timedelta"),
        ("safety='keyed', on_poison='skip'", "call", "belong to safety='outbox'"),
        ("safety='keyed', system='ledger'", "call", "belongs to safety='legacy'"),
        ("safety='legacy', system='a b'", "call", "ASCII letters"),
        ("safety='legacy', key_window=timedelta(hours=1)", "call", "belongs to safety='keyed'"),
        ("safety='legacy', probe='ask'", "call", "give a function"),
        ("safety='read', probe=print", "call", "never in doubt"),
        ("safety='local', remind_after=timedelta(hours=1)", "call", "never in doubt"),
        ("safety='legacy', remind_after=timedelta(0)", "call", "above 0"),
        ("safety='legacy', escalate_after=3", "call", "give a timedelta"),
        ("safety='read', scope='world'", "call", "choose one of run, tenant"),
        ("safety='read', timeout=0", "call", "above 0"),
        ("safety='read', timeout=None", "call", "timeout=None"),
        ("safety='read', key_window=timedelta(1)", "call", "belongs to safety='keyed'"),
        ("safety='keyed', key_window=timedelta(0)", "call", "above 0"),
        ("safety='keyed', key_window=60", "call", "give a timedelta"),
        ("safety='keyed', resource='order'", "call, *, title", "no such argument"),
        ("safety='read', name='a b'", "call", "ASCII letters"),
        ("safety='read'", "", "takes no `call`"),
        ("safety='read'", "*, call", "takes no `call`"),
        ("safety='read'", "call, title, /", "by position"),
        ("safety='read'", "call, *titles", "by position"),
        ("safety='read'", "call, *, resource", "keeps for itself"),
        ("safety='read'", "call, key", "keeps for itself"),
    ],
)
def test_tools(author: Author, options: str, arguments: str, why: str) -> None:
    message = author.mistake(f"\n@tool({options})  # here\ndef act({arguments}): ...\n")
    assert message.startswith(author.place("here"))
    assert why in message


@pytest.mark.parametrize(
    ("target", "version", "arguments", "why"),
    [
        ("One", "2", "old", "migrations go forward"),
        ("One", "3", "old", "migrations go forward"),
        ("One", "0", "old", "from 1"),
        ("One", "1", "old, at, new", "exactly one argument"),
        ("'w'", "1", "old", "version=None"),
        ("Empty", "1", "old", "decorated with @workflow"),
    ],
)
def test_migrations(author: Author, target: str, version: str, arguments: str, why: str) -> None:
    message = author.mistake(f"""
        @workflow(name="w", version=2, state=Empty)  # there
        class One:
            @step
            def a(run): ...

        @migration({target}, from_version={version})  # here
        def older({arguments}): return {{}}
    """)
    assert message.startswith(author.place("here"))
    assert why in message
    assert why != "migrations go forward" or author.place("there") in message


def test_mistake_leaves_nothing_registered(author: Author) -> None:
    author.mistake("""
        @workflow(name="w", version=1, state=Empty)
        class One: ...
    """)
    assert registry.workflows() == ()

"""What the engine reads: order, look-ups, and hashes that change with meaning and with nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest

from durableops.authoring.definitions import ToolDefinition, WorkflowDefinition
from durableops.errors import DefinitionError
from tests.authoring.conftest import Author

BATCH = """
@tool(safety="keyed", resource="row")
def create(call, *, row): ...

@tool(safety="read")
def look(call): ...

class Kept(State):
    source: str
    shards: list[str] = []

@workflow(name="batch", version=3, state=Kept)
class Batch:
    @step(timeout=60)
    def prepare(run):
        run.state.source = run.call(look)

    @step
    async def execute(run):
        rows = [row for row in run.state.shards]
        await run.call_many(create, [dict(row=row) for row in rows])
"""


def batch(author: Author, change: tuple[str, str] = ("", ""), *, name: str = "my_workflows") -> WorkflowDefinition:
    """The workflow above, after a developer replaced one text by another."""
    old, new = change
    assert old in BATCH
    with_change: ModuleType = author.write(BATCH.replace(old, new) if old else BATCH, name=name)
    definition = with_change.Batch
    assert isinstance(definition, WorkflowDefinition)
    return definition


@pytest.fixture
def changed(author: Author, own_registry: None):
    """The workflow before and after a change, each in a process of its own."""
    from durableops.authoring import registry

    def both(change: tuple[str, str]) -> tuple[WorkflowDefinition, WorkflowDefinition]:
        before = batch(author, name="before")
        with registry.isolated():
            after = batch(author, change, name="after")
            assert after.plan
        return before, after

    return both


# C101
@pytest.mark.parametrize(
    "change",
    [
        ("run.state.source = run.call(look)", "# what the source is\n        run.state.source = run.call(look)"),
        ("rows = [row for row in run.state.shards]", "rows = list(\n            run.state.shards\n        )"),
        ("rows", "lines"),
        ("(timeout=60)", "(timeout=90, retry=Retry(max_attempts=9))"),
        ("@step(timeout=60)\n    def prepare", "@step(id='prepare')\n    def get_ready"),
        ("async def execute(run):", 'async def execute(run):\n        """Say what it does."""'),
        ('(safety="read")\ndef look', '(safety="read", name="look", timeout=5)\ndef fetch'),
        ("Kept", "Remembered"),
        ("shards: list[str] = []", 'shards: list[str] = ["all"]'),
        ("class Kept(State):", 'class Kept(State):\n    """The facts."""'),
    ],
)
def test_change_without_meaning_changes_no_hash(changed, change: tuple[str, str]) -> None:
    if "def look" in change[0]:
        change_text = BATCH.replace(*change).replace("run.call(look)", "run.call(fetch)")
        change = (BATCH, change_text)
    before, after = changed(change)

    assert after.plan == before.plan
    assert after.plan_hash == before.plan_hash
    assert after.schema_hash == before.schema_hash


@pytest.mark.parametrize(
    "change",
    [
        ("def prepare", "def get_ready"),
        ("@step(timeout=60)", "@step(version=2)"),
        ("state=Kept)", "state=Kept, steps=['execute', 'prepare'])"),
        ('(safety="keyed", resource="row")', '(safety="local", resource="row")'),
        ("run.state.source = run.call(look)", "pass"),
        ('(safety="read")', '(safety="read", name="search")'),
    ],
)
def test_change_of_meaning_changes_the_plan_hash(changed, change: tuple[str, str]) -> None:
    before, after = changed(change)
    assert after.plan_hash != before.plan_hash


@pytest.mark.parametrize(
    "change",
    [
        ("shards: list[str] = []", "shards: list[int] = []"),
        ("shards: list[str] = []", "shards: set[str] = set()"),
        ("shards: list[str] = []", "shards: list[str] | None = None"),
        ("shards: list[str] = []", "shards: list[str] = []\n    more: int = 0"),
        ("source: str", "origin: str"),
    ],
)
def test_change_of_the_fields_changes_the_schema_hash_alone(changed, change: tuple[str, str]) -> None:
    before, after = changed(change)
    assert after.schema_hash != before.schema_hash
    assert after.plan_hash == before.plan_hash


def test_order_of_fields_is_no_change(changed) -> None:
    old = "source: str\n    shards: list[str] = []"
    before, after = changed((old, "shards: list[str] = []\n    source: str"))
    assert after.schema_hash == before.schema_hash


def test_fingerprint_tells_builds_apart_that_the_plan_does_not(changed):
    before, after = changed(("rows = [", "rows = [] + ["))
    assert after.plan_hash == before.plan_hash
    assert after.source_fingerprint != before.source_fingerprint


def test_fingerprint_ignores_comments_layout_and_documentation(changed):
    before, after = changed(("rows = [", '"""Each row."""\n        # of all\n        rows = ['))
    assert after.source_fingerprint == before.source_fingerprint


def test_plan_is_json_and_names_tools_by_name_and_safety(author: Author) -> None:
    assert batch(author).plan == {
        "format": 1,
        "steps": [
            {"id": "prepare", "version": 1, "tools": [{"name": "look", "safety": "read"}]},
            {"id": "execute", "version": 1, "tools": [{"name": "create", "safety": "keyed"}]},
        ],
    }


def test_steps_are_found_by_id_and_in_order(author: Author) -> None:
    definition = batch(author)
    prepare, execute = definition.steps

    assert (prepare.id, prepare.timeout, prepare.is_async) == ("prepare", 60, False)
    assert (execute.id, execute.timeout, execute.is_async) == ("execute", 3600, True)
    assert definition.step("execute") is execute
    assert (definition.index("prepare"), definition.index("execute")) == (0, 1)
    assert definition.next_step("prepare") is execute
    assert definition.next_step("execute") is None
    with pytest.raises(KeyError):
        definition.step("gone")


def test_definition_knows_where_it_was_written(author: Author) -> None:
    module = author.write("""
        @tool(safety="read")  # tool
        def look(call): ...

        @workflow(name="w", version=1, state=Empty)  # workflow
        class One:
            @step  # step
            def a(run): ...
    """)
    assert str(module.look.source) == author.place("tool")
    assert str(module.One.source) == author.place("workflow")
    assert str(module.One.step("a").source) == author.place("step")


def test_warning_about_attempts_that_the_deadline_leaves_no_room_for(author: Author) -> None:
    # C052
    module = author.write("""
        @workflow(name="w", version=1, state=Empty, deadline=timedelta(seconds=600))
        class One:
            @step(timeout=300, retry=Retry(max_attempts=2, first_delay=5))
            def tight(run): ...
            @step(timeout=100)
            def roomy(run): ...
            @step
            def unsaid(run): ...
    """)
    (warning,) = module.One.warnings
    assert "step 'tight'" in warning
    assert "605 s for its 2 attempts" in warning


def tool_of(author: Author, options: str, arguments: str) -> ToolDefinition:
    definition = author.write(f"\n@tool({options})\ndef act(call, {arguments}): return arguments\n").act
    assert isinstance(definition, ToolDefinition)
    return definition


def test_resource_comes_from_the_call_or_from_the_named_argument(author: Author) -> None:
    act = tool_of(author, "safety='keyed', resource='order'", "*, order")
    assert act.resource_for({"order": 7}) == "7"
    assert act.resource_for({"order": "o7"}) == "o7"
    assert act.resource_for({"order": "o7"}, resource="other") == "other"


@pytest.mark.parametrize("request_", [{}, {"order": ""}, {"order": None}, {"order": 1.5}, {"order": True}])
def test_call_without_resource_is_refused_when_it_runs(author: Author, request_: dict[str, object]) -> None:
    act = tool_of(author, "safety='keyed', resource='order'", "*, order=None")
    with pytest.raises(DefinitionError) as caught:
        act.resource_for(request_)
    assert str(act.source) in caught.value.detail
    assert "'order'" in caught.value.detail


def test_read_needs_no_resource_and_others_do(author: Author) -> None:
    assert tool_of(author, "safety='read', name='a'", "*, title=''").resource_for({}) == ""
    with pytest.raises(DefinitionError, match="names no resource"):
        tool_of(author, "safety='local', name='b'", "*, title=''").resource_for({})


def test_request_is_compared_with_the_arguments_before_anything_is_sent(author: Author) -> None:
    act = tool_of(author, "safety='read'", "*, title, body=''")
    act.check_request({"title": "x"})
    act.check_request({"title": "x", "body": "y"})
    with pytest.raises(DefinitionError, match="lacks title"):
        act.check_request({"body": "y"})
    with pytest.raises(DefinitionError, match="has unknown colour"):
        act.check_request({"title": "x", "colour": "red"})


def test_tool_that_takes_anything_accepts_anything(author: Author) -> None:
    tool_of(author, "safety='read'", "**facts").check_request({"a": 1, "b": 2})

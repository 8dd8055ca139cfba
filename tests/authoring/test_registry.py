"""Look-ups by name and version, and what happens when modules are imported again."""

from __future__ import annotations

import importlib

import pytest

from durableops.authoring import registry
from durableops.errors import WorkflowNotFound
from tests.authoring.conftest import Author

TWO_VERSIONS = """
@tool(safety="read")
def look(call): ...

@workflow(name="w", version=1, state=Empty)
class Old:
    @step
    def a(run): ...

@workflow(name="w", version=10, state=Empty)
class New:
    @step
    def a(run): ...

@workflow(name="v", version=2, state=Empty)
class Other:
    @step
    def a(run): ...

@migration(New, from_version=2)
def from_two(old): return old

@migration(New, from_version=1)
def from_one(old): return old
"""


def test_newest_version_is_found_unless_one_is_named(author: Author) -> None:
    module = author.write(TWO_VERSIONS)

    assert registry.workflow("w") is module.New
    assert registry.workflow("w", 1) is module.Old
    assert registry.versions("w") == (1, 10)
    assert registry.versions("gone") == ()


def test_everything_is_listed_in_a_stable_order(author: Author) -> None:
    module = author.write(TWO_VERSIONS)

    assert registry.workflows() == (module.Other, module.Old, module.New)
    assert registry.tools() == (module.look,)
    assert registry.migrations("w") == (module.from_one, module.from_two)
    assert registry.migrations("v") == ()


@pytest.mark.parametrize(
    ("name", "version", "have"),
    [("gone", None, "there are: v, w"), ("gone", 1, "there are: v, w"), ("w", 2, "no version 2 here; it has 1, 10")],
)
def test_unknown_workflow_says_which_there_are(author: Author, name: str, version: int | None, have: str) -> None:
    author.write(TWO_VERSIONS)
    with pytest.raises(WorkflowNotFound, match=have) as caught:
        registry.workflow(name, version)
    assert caught.value.http_status == 404


def test_import_retried_after_it_failed_shows_the_first_failure_again(author: Author) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            author.write(TWO_VERSIONS + "\n1 / 0\n")


def test_reloaded_module_replaces_its_definitions(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    module = author.write(TWO_VERSIONS)
    before = module.New
    monkeypatch.syspath_prepend(str(author.folder))
    importlib.reload(module)
    assert registry.workflow("w") is module.New is not before


def test_isolated_registry_leaves_the_outer_one_alone(author: Author) -> None:
    module = author.write(TWO_VERSIONS)
    with registry.isolated() as inner:
        assert registry.workflows() == ()
        assert registry.current() is inner
    assert registry.workflow("w") is module.New


def test_cleared_registry_is_empty(author: Author) -> None:
    author.write(TWO_VERSIONS)
    registry.clear()
    assert [registry.workflows(), registry.tools(), registry.migrations("w")] == [(), (), ()]

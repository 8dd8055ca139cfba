"""The example workflows as definitions: loadable, ten steps, tools where they are used."""

from __future__ import annotations

from durableops.authoring import registry
from examples.batch_import.workflows import ImportState
from examples.ten_step import workflows as ten_step


def test_the_import_has_its_five_steps_and_names_its_tool():
    found = registry.workflow("batch-import")

    assert [step.id for step in found.steps] == ["prepare", "shard", "execute", "summarize", "deliver"]
    assert [tool.name for tool in found.step("execute").tools] == ["create_ticket"]


def test_the_ten_steps_are_ten_and_four_of_them_call():
    found = registry.workflow("ten-step")

    assert len(found.steps) == 10
    assert found.source.file == ten_step.__file__
    assert [step.id for step in found.steps if step.tools] == ["reserve", "propose", "order_parts", "ship"]


def test_the_state_of_an_import_does_not_grow_with_its_file():
    state = ImportState(source="x", shards=[(10**12, 10**9)] * 8, rows=10**9, imported=10**9, rejected=10**9)

    assert len(state.model_dump_json()) < 1000

"""The example workflows as definitions: loadable, ten steps, tools where they are used."""

from __future__ import annotations

from examples.batch_import.workflows import BatchImport, ImportState
from examples.ten_step.workflows import TenStep


def test_the_import_has_its_five_steps_and_names_its_tool():
    assert [step.id for step in BatchImport.steps] == ["prepare", "shard", "execute", "summarize", "deliver"]
    assert [tool.name for tool in BatchImport.step("execute").tools] == ["create_ticket"]


def test_the_ten_steps_are_ten_and_four_of_them_call():
    assert len(TenStep.steps) == 10
    assert [step.id for step in TenStep.steps if step.tools] == ["reserve", "propose", "order_parts", "ship"]


def test_the_state_of_an_import_does_not_grow_with_its_file():
    state = ImportState(source="x", shards=[(10**12, 10**9)] * 8, rows=10**9, imported=10**9, rejected=10**9)

    assert len(state.model_dump_json()) < 1000

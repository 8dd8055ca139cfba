"""Stories of a deploy while runs wait: which go on, which are parked, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from durableops.authoring import registry
from durableops.authoring.decorators import step, tool, workflow
from durableops.authoring.definitions import Safety, WorkflowDefinition
from durableops.authoring.state import State
from durableops.checkpoints import schema_differences
from durableops.checkpoints.compatibility import Continue, Park, RecordedPlan, compare


class Order(State):
    number: str


class OrderWithNote(State):
    number: str
    note: str = ""


class OrderRead(State):
    number: str
    schema_version = 2


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


def deploy(
    *steps: str,
    version: int = 1,
    state: type[State] = Order,
    step_version: int = 1,
    safety: Safety | None = None,
) -> WorkflowDefinition:
    """What a process has after a deploy: a workflow of these steps, the first with a tool if asked."""
    with registry.isolated():
        tools = [tool(safety=safety, name="charge")(lambda call, **request: None)] if safety else []
        body: dict[str, Any] = {}
        for place, name in enumerate(steps):
            options: dict[str, Any] = {"tools": tools, "version": step_version} if place == 0 else {}
            body[name] = step(id=name, **options)(lambda run: None)
        return workflow(name="order", version=version, state=state)(type("Deployed", (), body))


def parked(recorded: WorkflowDefinition, present: WorkflowDefinition | None, **options: Any) -> Park:
    answer = compare(RecordedPlan.of(recorded), None if present is None else RecordedPlan.of(present), **options)
    assert isinstance(answer, Park)
    return answer


def kinds(park: Park) -> list[str]:
    return [f"{each.kind} {each.subject}" for each in park.differences]


# C101
def test_run_goes_on_under_the_same_plan_deployed_again() -> None:
    before, after = deploy("a", "b", safety="keyed"), deploy("a", "b", safety="keyed")
    assert compare(RecordedPlan.of(before), RecordedPlan.of(after), at_step="b") == Continue()


def test_added_removed_and_moved_steps_park_the_run() -> None:
    park = parked(deploy("a", "b", "c"), deploy("c", "b", "d"))

    assert park.reason_code == "plan_changed"
    assert kinds(park) == ["step_removed a", "step_moved b", "step_moved c", "step_added d"]
    assert "step added d: - became d" in park.reason


def test_new_version_of_a_step_parks_the_run() -> None:
    assert kinds(parked(deploy("a"), deploy("a", step_version=2))) == ["step_version a"]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [("read", "keyed", "tool_safety"), (None, "keyed", "tool_added"), ("keyed", None, "tool_removed")],
)
def test_other_safety_of_a_tool_parks_the_run(before: Safety | None, after: Safety | None, kind: str) -> None:
    assert kinds(parked(deploy("a", safety=before), deploy("a", safety=after))) == [f"{kind} a/charge"]


def test_changed_fields_under_one_schema_version_park_the_run() -> None:
    park = parked(deploy("a"), deploy("a", state=OrderWithNote))
    assert (park.reason_code, kinds(park)) == ("schema_changed", ["field_added /note"])


def test_new_schema_version_parks_the_run() -> None:
    park = parked(deploy("a"), deploy("a", state=OrderRead))
    assert (park.reason_code, kinds(park)) == ("schema_changed", ["schema_version order"])


def test_unknown_workflow_parks_the_run() -> None:
    park = parked(deploy("a"), None)
    assert park.reason_code == "workflow_unknown"
    assert "'order'" in park.reason


def test_another_version_parks_the_run_with_everything_that_changed() -> None:
    park = parked(deploy("a", "b"), deploy("a", "c", "d", version=3, state=OrderWithNote))
    assert park.reason_code == "version_changed"
    assert kinds(park) == ["version order", "field_added /note", "step_removed b", "step_added c", "step_added d"]
    assert "version 1, and the code has version 3" in park.reason


def test_renamed_step_between_the_same_neighbours_is_told_as_renamed() -> None:
    park = parked(deploy("a", "b", "c"), deploy("a", "bee", "c"))
    assert [(d.kind, d.recorded, d.present) for d in park.differences] == [("step_renamed", "b", "bee")]


def test_awaited_event_that_the_code_no_longer_asks_for_parks_the_run() -> None:
    present = dataclasses.replace(
        RecordedPlan.of(deploy("a")), waits={"a": {"names": [["event", "news"]], "complete": True}}
    )
    recorded = RecordedPlan.of(deploy("a"))
    assert compare(recorded, present, at_step="a", awaited=[("event", "news"), ("time", "sleep")]) == Continue()
    gone = compare(recorded, present, at_step="a", awaited=[("event", "olds")])
    assert isinstance(gone, Park)
    assert (gone.reason_code, kinds(gone)) == ("wait_gone", ["wait_gone a/olds"])
    unsure = dataclasses.replace(present, waits={"a": {"names": [], "complete": False}})
    assert compare(recorded, unsure, at_step="a", awaited=[("event", "olds")]) == Continue()


def test_same_incompatibility_has_the_same_fingerprint() -> None:
    one, other = (parked(deploy("a", "b"), deploy("a", "c")) for _ in range(2))
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != parked(deploy("a", "b"), deploy("a", "d")).fingerprint


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({"n": "int"}, {"n": "str"}, ["field_type /n: int became str"]),
        ({"n": "int"}, {}, ["field_removed /n: int became -"]),
        ({"n": {"list": ["int"]}}, {"n": {"list": ["str"]}}, ["field_type /n/*: int became str"]),
        ({"n": {"fields": {"x": "int"}}}, {"n": {"fields": {"y": "int"}}},
         ["field_removed /n/x: int became -", "field_added /n/y: - became int"]),
        ({"n": {"union": ["int", "str"]}}, {"n": {"union": ["NoneType", "int"]}},
         ["field_type /n: int | str became None | int"]),
    ],
)  # fmt: skip
def test_differences_of_schemas_are_told_by_path(old: Any, new: Any, told: list[str]) -> None:
    found = schema_differences.between({"fields": old}, {"fields": new})
    assert [str(each).replace("field ", "field_", 1) for each in found] == told


def test_run_at_a_step_that_is_not_in_the_plan_is_parked() -> None:
    park = parked(deploy("a"), deploy("a"), at_step="b")
    assert (park.reason_code, kinds(park)) == ("step_unknown", ["position b"])


def test_hash_that_is_not_of_the_recorded_plan_parks_the_run() -> None:
    present = deploy("a")
    answer = compare(dataclasses.replace(RecordedPlan.of(present), plan_hash="0" * 64), RecordedPlan.of(present))
    assert isinstance(answer, Park)
    assert kinds(answer) == ["plan order"]


def test_plan_recorded_in_another_format_parks_the_run_without_being_read() -> None:
    present = deploy("a")
    recorded = RecordedPlan.of(present)
    other = {"format": 0, "stages": []}
    answer = compare(dataclasses.replace(recorded, plan=other, plan_hash="0" * 64), RecordedPlan.of(present))
    assert isinstance(answer, Park)
    assert kinds(answer) == ["plan order"]


def test_differences_are_plain_json() -> None:
    park = parked(deploy("a"), deploy("b"))
    assert [each.as_json() for each in park.differences] == [
        {"kind": "step_renamed", "subject": "b", "recorded": "a", "present": "b"},
    ]

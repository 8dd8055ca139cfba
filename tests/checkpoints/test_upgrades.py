"""What a run becomes under a newer version: worked out by pure functions, refused as a whole if anything is open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from durableops import Migrated, Position, State, migration, step, tool, workflow
from durableops.authoring import registry
from durableops.authoring.definitions import WorkflowDefinition
from durableops.checkpoints.upgrades import SeenEffect, SeenWait, Snapshot, Upgraded, upgrade
from durableops.errors import InputRefused, MigrationRefused
from durableops.testing import migrated


class Import(State):
    sources: list[str]
    limit: int = 0


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with registry.isolated():
        yield


@pytest.fixture
def target() -> WorkflowDefinition:
    send = tool(safety="keyed", name="send")(lambda call, **request: None)

    def wait(run: Any) -> None:
        run.wait_for("parcel")

    body = {
        "prepare": step(id="prepare")(lambda run: None),
        "load": step(id="load", tools=[send])(lambda run: None),
        "ask": step(id="ask")(wait),
    }
    return workflow(name="import", version=3, state=Import)(type("Target", (), body))


def seen(**over: Any) -> Snapshot:
    values: dict[str, Any] = {
        "version": 2, "state": '{"source":"a"}', "step_id": "load", "cursor": None, "committed": ("prepare",)
    }  # fmt: skip
    return Snapshot(**(values | over))


def becomes(target: WorkflowDefinition, answer: Any, **over: Any) -> Upgraded:
    @migration("import", from_version=2, to_version=3)
    def newer(old: dict[str, Any], at: Position) -> Any:
        return answer(old, at) if callable(answer) else answer

    return upgrade(seen(**over), registry.chain("import", 2, 3), target)


def state(old: dict[str, Any]) -> dict[str, Any]:
    return {"sources": [old["source"]]}


def test_new_state_is_checked_and_written_out_whole(target: WorkflowDefinition) -> None:
    found = becomes(target, lambda old, at: state(old))
    assert (found.state, found.step_id) == ('{"sources":["a"],"limit":0}', "load")
    assert found.functions[0]["name"] == "newer"


def test_chain_is_followed_step_by_step(target: WorkflowDefinition) -> None:
    @migration("import", from_version=1, to_version=2)
    def one(old: dict[str, Any]) -> Any:
        return Migrated(state={"source": old["file"]}, steps={"read": "fetch"})

    @migration(target, from_version=2)
    def two(old: dict[str, Any], at: Position) -> Any:
        assert at.step == "fetch"
        return Migrated(state=state(old), steps={"fetch": "load"})

    found = upgrade(
        seen(version=1, state='{"file":"x"}', step_id="read"), registry.chain("import", 1, 3), target
    )  # fmt: skip
    assert (found.step_id, found.steps) == ("load", {"read": "load"})
    assert [f["name"] for f in found.functions] == ["one", "two"]


def test_shortest_way_through_the_migrations_is_taken(target: WorkflowDefinition) -> None:
    for old, new in ((1, 2), (2, 3), (1, 3)):
        migration("import", from_version=old, to_version=new)(lambda old: old)
    assert [(m.from_version, m.to_version) for m in registry.chain("import", 1, 3)] == [(1, 3)]
    assert registry.chain("import", 7, 3) == ()


turns = itertools.count()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"sources": 5}, "/sources"),
        ({"sources": [], "colour": 1}, "/colour"),
        (lambda old, at: {"sources": [str(next(turns))]}, "pure"),
        (lambda old, at: 1 / 0, "ZeroDivisionError"),
        (lambda old, at: None, "returned NoneType"),
        (lambda old, at: (_ for _ in ()).throw(InputRefused("no source is empty.")), "no source is empty"),
        (Migrated(state={"sources": []}, at="nowhere"), "'nowhere'"),
        (Migrated(state={"sources": []}, at="prepare"), "committed and never runs again"),
    ],
)
def test_result_that_does_not_fit_refuses_the_whole(target: WorkflowDefinition, answer: Any, why: str) -> None:
    with pytest.raises(MigrationRefused, match=why):
        becomes(target, answer)


def test_without_a_migration_there_is_no_way(target: WorkflowDefinition) -> None:
    with pytest.raises(MigrationRefused, match="no migration"):
        upgrade(seen(), (), target)


class TestCalls:
    effect = SeenEffect(id=1, step_id="load", tool="send", safety="keyed", unsettled=True)

    def test_call_without_an_outcome_has_to_be_spoken_for(self, target: WorkflowDefinition) -> None:
        with pytest.raises(MigrationRefused, match="has no outcome"):
            becomes(target, lambda old, at: state(old), effects=(self.effect,))
        found = becomes_again(target, Migrated(state={"sources": []}, effects={"send": "send"}), effects=(self.effect,))
        assert found.effects == {}

    def test_call_without_an_outcome_may_not_be_left_behind(self, target: WorkflowDefinition) -> None:
        with pytest.raises(MigrationRefused, match="has no outcome"):
            becomes(target, Migrated(state={"sources": []}, effects={"send": None}), effects=(self.effect,))

    def test_call_may_not_land_where_its_tool_is_not(self, target: WorkflowDefinition) -> None:
        with pytest.raises(MigrationRefused, match="would be sent again"):
            becomes(target, Migrated(state={"sources": []}, effects={"send": "post"}), effects=(self.effect,))

    def test_settled_call_of_the_present_step_must_stay_findable(self, target: WorkflowDefinition) -> None:
        done = SeenEffect(id=1, step_id="load", tool="post", safety="keyed", unsettled=False)
        with pytest.raises(MigrationRefused, match="would be sent again"):
            becomes(target, lambda old, at: state(old), effects=(done,))
        found = becomes_again(target, Migrated(state={"sources": []}, effects={"post": "send"}), effects=(done,))
        assert found.effects == {("load", "post"): ("load", "send")}


class TestWaits:
    wait = SeenWait(id=5, kind="event", name="letter", state="open")

    def test_awaited_event_that_is_gone_has_to_be_mapped(self, target: WorkflowDefinition) -> None:
        with pytest.raises(MigrationRefused, match="does not ask for"):
            becomes(target, lambda old, at: state(old), step_id="ask", waits=(self.wait,))
        found = becomes_again(
            target, Migrated(state={"sources": []}, waits={"letter": "parcel"}), step_id="ask", waits=(self.wait,)
        )
        assert found.waits == {5: "parcel"}

    def test_wait_may_be_given_up(self, target: WorkflowDefinition) -> None:
        said = Migrated(state={"sources": []}, waits={"letter": None})
        assert becomes(target, said, step_id="ask", waits=(self.wait,)).waits == {5: None}

    def test_open_wait_of_a_step_that_is_left_has_to_be_given_up(self, target: WorkflowDefinition) -> None:
        said = Migrated(state={"sources": []}, at="ask")
        with pytest.raises(MigrationRefused, match="would leave"):
            becomes(target, said, waits=(self.wait,))


def becomes_again(target: WorkflowDefinition, answer: Any, **over: Any) -> Upgraded:
    """The same with another answer: what was declared first is forgotten."""
    with registry.isolated():
        return becomes(target, answer, **over)


def test_authors_test_their_migrations_without_a_run(target: WorkflowDefinition) -> None:
    @migration(target, from_version=2)
    def newer(old: dict[str, Any]) -> Migrated:
        return Migrated(state=state(old), effects={"send": "send"})

    calls = [("load", "send", "keyed")]
    found = migrated(target, {"source": "a"}, from_version=2, step="load", calls=calls, committed=["prepare"])
    assert found.state == '{"sources":["a"],"limit":0}'
    with pytest.raises(MigrationRefused, match="which version 3 does not have"):
        migrated(target, {"source": "a"}, from_version=2, step="gone")

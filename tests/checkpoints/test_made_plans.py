"""Plans that runs make for themselves: what may stand in one, and whether the code still fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durableops import Migrated, Position, State, migration, step, workflow
from durableops.authoring import registry
from durableops.checkpoints.compatibility import Continue, Park
from durableops.checkpoints.made_plans import MadePlan, compare, made
from durableops.errors import MigrationRefused, PlanRefused
from durableops.testing import migrated


class Nothing(State):
    pass


def declared(version: int = 1, *steps: str, **versions: int) -> Any:
    given = steps or ("think", "search", "compare", "write")
    return workflow(name="agent", version=version, state=Nothing)(
        type("Agent", (), {s: step(id=s, version=versions.get(s, 1))(lambda run: None) for s in given})
    )


@pytest.fixture(autouse=True)
def empty(own_registry):
    own_registry.clear()


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (["write", "publish"], "no such step; it has think, search, compare, write"),
        (["write", "write"], "twice"),
        (["think", "write"], "the present step"),
        (["search"], "committed"),
        (["write", None], "no such step"),
        ("write", "a list of step ids"),
    ],
)
def test_plan_names_steps_that_can_follow_or_is_refused_with_the_place(steps, why):
    with pytest.raises(PlanRefused, match=why):
        made(declared(), steps, at="think", done=["search"])


def test_hash_of_a_made_plan_changes_with_what_a_declared_one_changes_with():
    of = made(declared(), ["write", "search"])
    assert of.plan_hash == made(declared(2), ["write", "search"]).plan_hash
    assert of.plan_hash != made(declared(3), ["search", "write"]).plan_hash
    assert of.plan_hash != made(declared(4, write=2), ["write", "search"]).plan_hash


def test_run_goes_on_only_where_each_step_of_its_plan_means_what_it_did():
    plan = made(declared(), ["write", "search"])
    assert isinstance(compare(plan, declared(2), at_step="write"), Continue)
    gone = compare(plan, declared(3, "think", "write"), at_step="write")
    other = compare(plan, declared(4, write=2), at_step="write")
    assert isinstance(gone, Park)
    assert isinstance(other, Park)
    assert (gone.reason_code, [str(d) for d in gone.differences]) == (
        "plan_changed", ["step removed search: search became -"],
    )  # fmt: skip
    assert [str(d) for d in other.differences] == ["step version write: 1 became 2"]


@pytest.mark.parametrize("over", [{"plan_hash": "0" * 64}, {"steps": ("search", "write")}])
def test_plan_that_is_not_what_was_hashed_parks_the_run(over):
    plan: MadePlan = replace(made(declared(), ["write", "search"]), **over)
    verdict = compare(plan, registry.workflow("agent", 1), at_step="write")
    assert isinstance(verdict, Park)
    assert verdict.reason_code == "plan_unreadable"


def test_migration_speaks_for_the_plan_a_run_made_or_is_refused():
    new = declared(2, "think", "find", "write")
    seen: list[Any] = []

    @migration(new, from_version=1)
    def up(old: dict[str, Any], at: Position) -> Migrated:
        seen.append(at.planned)
        return Migrated(state=old, steps={"search": "find"})

    def ahead(*planned: str) -> Any:
        return migrated(new, {}, from_version=1, step=planned[0], planned=planned, committed=["think"]).planned

    assert ahead("search", "write").steps == ("find", "write")
    assert seen[-1] == ("search", "write")
    with pytest.raises(MigrationRefused, match="'compare' at place 2"):
        ahead("search", "compare")
    assert migrated(new, {}, from_version=1, step="search").planned is None

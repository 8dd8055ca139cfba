"""A deploy between a question and its answer: whoever is first, reviewer or approver, the answer is kept and used."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from durableops import State, migration, step, workflow
from durableops.engine import deciding, reviewing
from durableops.errors import TransitionRefused
from runs.models import Approval, Checkpoint, Review, Run
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Old(State):
    source: str = "a"


class New(State):
    sources: list[str] = []


def version_one(registry) -> None:
    registry.clear()

    def ask(run: Any) -> str:
        return str(run.approval("go").by)

    workflow(name="import", version=1, state=Old)(type("Import", (), {"load": step(id="load")(ask)}))


def version_two(registry) -> None:
    registry.clear()

    def ask(run: Any) -> list[Any]:
        return [run.approval("go").by, run.state.sources]

    newer = workflow(name="import", version=2, state=New, migrate="reviewed")(
        type("Import", (), {"load": step(id="load")(ask)})
    )

    @migration(newer, from_version=1)
    def sources(state: dict[str, Any]) -> dict[str, Any]:
        return {"sources": [state["source"]]}


def connected(work: Any) -> Any:
    try:
        return work()
    except TransitionRefused as refused:
        return refused
    finally:
        connections.close_all()


@pytest.mark.parametrize("first", ["answer", "migration"])
def test_answer_and_migration_that_meet_are_both_kept_and_the_run_ends_under_the_new_version(
    engine, own_registry, second, first
):  # C100
    version_one(own_registry)
    run = engine.run("import", {"source": "x"})
    wait = run.waits.get()
    version_two(own_registry)
    works = {
        "answer": lambda: deciding.approve(wait.pk, tenant=engine.tenant, actor="ann", reason="fine"),
        "migration": lambda: reviewing.migrate(run.pk, tenant=engine.tenant, actor="rita", reason="looked"),
    }
    with holding(second, "SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.pk]):
        one = Background(lambda: connected(works[first]))
        until_blocked(count=1)
        other = Background(lambda: connected(works["migration" if first == "answer" else "answer"]))
        until_blocked(count=2)
    assert [str(answer) for answer in (one.result(), other.result()) if isinstance(answer, TransitionRefused)] == []
    assert Approval.objects.get(wait=wait).decided_by == "ann"
    engine.drain()
    run.refresh_from_db()
    assert (run.state, run.plan.version) == ("succeeded", 2)
    assert Checkpoint.objects.get(run=run, kind="finish").output == '["ann",["x"]]'


def test_answer_given_before_anybody_decided_about_the_deploy_is_kept_and_used_after_it(engine, own_registry):  # C100
    version_one(own_registry)
    run = engine.run("import", {"source": "x"})
    version_two(own_registry)
    deciding.approve(run.waits.get().pk, tenant=engine.tenant, actor="ann", reason="fine")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, Review.objects.get(run=run).closed_at) == ("in_review", None), "it is listed, not running"
    reviewing.migrate(run.pk, tenant=engine.tenant, actor="rita", reason="looked")
    engine.drain()
    run.refresh_from_db()
    assert (run.state, Run.objects.get().plan.version) == ("succeeded", 2)
    assert Checkpoint.objects.get(run=run, kind="finish").output == '["ann",["x"]]'

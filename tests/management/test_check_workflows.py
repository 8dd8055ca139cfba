"""The gate before a deploy: each open run under one verdict, the exit status that a script reads, nothing written."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from durableops import State, migration, step, workflow
from runs.models import Review, Run

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Old(State):
    source: str = "a"


class New(State):
    sources: list[str] = []


def declare(name: str, version: int, state: type[State], *, event: str = "parcel", **options: Any) -> Any:
    def parcel(run: Any) -> None:
        run.wait_for("parcel")

    def letter(run: Any) -> None:
        run.wait_for("letter")

    steps = {"load": step(id="load")(parcel if event == "parcel" else letter)}
    return workflow(name=name, version=version, state=state, **options)(type("Declared", (), steps))


def check() -> tuple[int, dict[str, Any]]:
    out, status = StringIO(), 0
    try:
        call_command("check_workflows", "--json", stdout=out)
    except SystemExit as left:
        status = int(str(left.code))
    found: dict[str, Any] = json.loads(out.getvalue())
    assert found["status"] == status
    return status, found


def counts(found: dict[str, Any]) -> dict[str, int]:
    return {name: found[name] for name in ("continue", "migrate", "fail", "review", "pinned") if found[name]}


@pytest.fixture
def deployed(engine, own_registry) -> list[Run]:
    """Three runs of version 1: one goes wrong in a migration."""
    declare("import", 1, Old)
    return [engine.run("import", {"source": source}) for source in ("a", "b", "bad")]


def migrate_all(policy: Any) -> None:
    newer = declare("import", 2, New, migrate=policy)
    migration(newer, from_version=1)(lambda old: {"sources": [old["source"]] if old["source"] != "bad" else 7})


def test_runs_that_fit_go_on_and_the_gate_is_open(deployed):
    assert check()[0] == 0
    assert counts(check()[1]) == {"continue": 3}


def test_runs_without_a_migration_need_a_person(deployed, own_registry):
    own_registry.clear()
    declare("import", 2, New)
    status, found = check()
    assert (status, counts(found)) == (3, {"review": 3})
    assert "field removed /source" in found["plans"][0]["why"][0]["why"]


def test_migrations_that_would_fail_are_told_before_the_deploy(deployed, own_registry):
    own_registry.clear()
    migrate_all("automatic")
    status, found = check()
    assert (status, counts(found)) == (4, {"migrate": 2, "fail": 1})
    assert found["plans"][0]["why"][0]["run"] == str(deployed[2].pk)
    assert set(Run.objects.values_list("lineage", "state")) == {(1, "waiting")}
    assert not Review.objects.exists()


def test_policy_that_wants_all_clean_leaves_the_rest_to_a_person(deployed, own_registry):
    own_registry.clear()
    migrate_all("if_clean")
    assert counts(check()[1]) == {"review": 2, "fail": 1}
    Run.objects.filter(pk=deployed[2].pk).update(pinned=True)
    status, found = check()
    assert (status, counts(found)) == (0, {"migrate": 2, "pinned": 1})


def test_event_that_nobody_would_wait_for_any_more_is_told(deployed, own_registry):
    own_registry.clear()
    declare("import", 1, Old, event="letter")
    status, found = check()
    assert (status, counts(found)) == (3, {"review": 3})
    assert "parcel" in found["plans"][0]["why"][0]["why"]


def test_code_that_changed_under_its_version_is_reported_and_stops_nobody(engine, deployed, own_registry):
    own_registry.clear()

    def changed(run: Any) -> None:
        run.wait_for("parcel")
        run.log("it came")

    workflow(name="import", version=1, state=Old)(type("Declared", (), {"load": step(id="load")(changed)}))
    status, found = check()
    assert status == 0
    assert [(one["workflow"], one["version"]) for one in found["source_changed"]] == [("import", 1)]


def test_workflow_that_is_gone_needs_a_person(deployed, own_registry):
    own_registry.clear()
    status, found = check()
    assert (status, counts(found), found["plans"][0]["target"]) == (3, {"review": 3}, None)


def test_nothing_open_is_nothing_to_decide(engine, own_registry):
    out = StringIO()
    call_command("check_workflows", stdout=out)
    assert out.getvalue() == "no run is open.\n"

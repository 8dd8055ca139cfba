"""Runs that a deploy left behind are found while they wait, once, and let go when their version is there again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops import State, migration, step, workflow
from durableops.engine import commands
from durableops.upkeep import stranded
from runs.models import Review, Run
from tests.factories import make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Facts(State):
    n: int = 0


def deploy(registry, version: int, *, name: str = "import", policy: Any = "automatic", chain: bool = False) -> None:
    registry.clear()

    def ask(run: Any) -> str:
        return str(run.approval("go").by)

    made = workflow(name=name, version=version, state=Facts, migrate=policy)(
        type("Import", (), {"load" if version == 1 else "ingest": step(id="load" if version == 1 else "ingest")(ask)})
    )
    if chain:
        migration(made, from_version=1)(lambda old: old)


@pytest.fixture
def left_behind(engine, own_registry) -> Run:
    """A run that waits under version 1, long before a deploy of version 2 without a migration."""
    deploy(own_registry, 1)
    run = engine.run("import")
    Run.objects.filter(pk=run.pk).update(state_since=now() - timedelta(hours=1))
    deploy(own_registry, 2)
    engine.drain()
    return run


# C100
def test_waiting_run_is_listed_for_a_decision_at_deploy_time_and_its_answer_is_kept(engine, left_behind):
    for _ in range(2):
        engine.rounds()
    found = Review.objects.get(run=left_behind)
    assert (found.code, found.target.version if found.target else None) == ("version_changed", 2)
    assert Run.objects.get(pk=left_behind.pk).state == "waiting"
    commands.approve(left_behind.waits.get().pk, tenant=engine.tenant, actor="rita")
    engine.worker.listener.in_hand.offer.keep(engine.worker.database, at_once=True)
    engine.drain()
    assert Run.objects.get(pk=left_behind.pk).state == "in_review"
    assert left_behind.waits.get().answered_by == "rita"


def test_run_whose_version_some_worker_still_has_is_not_listed(engine, left_behind):
    make_worker(plans=[left_behind.plan_id])
    assert stranded.find(engine.worker.database) == 0
    assert not Review.objects.exists()


def test_run_that_workers_will_migrate_by_themselves_is_not_listed(engine, left_behind, own_registry):
    deploy(own_registry, 2, chain=True)
    assert stranded.find(engine.worker.database) == 0


def test_run_that_only_a_person_may_migrate_is_listed(engine, left_behind, own_registry):
    deploy(own_registry, 2, chain=True, policy="reviewed")
    assert stranded.find(engine.worker.database) == 1


def test_upkeep_of_the_old_code_leaves_it_to_the_new(engine, left_behind, own_registry):
    deploy(own_registry, 1)
    assert stranded.find(engine.worker.database) == 0


def test_pinned_run_is_not_listed(engine, left_behind):
    Run.objects.update(pinned=True)
    assert stranded.find(engine.worker.database) == 0


def test_finding_is_closed_when_workers_have_its_version_again(engine, left_behind):
    assert stranded.find(engine.worker.database) == 1
    make_worker(plans=[left_behind.plan_id])
    assert stranded.find(engine.worker.database) == 1
    assert Review.objects.get().closed_as == "resolved"


def test_without_any_worker_nothing_is_said_about_versions(engine, left_behind):
    engine.worker.lease.end("stopped")
    assert stranded.find(engine.worker.database) == 0

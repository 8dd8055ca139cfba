"""What holds a run back while it could run: seen by upkeep, told by the claim with how long, shown to people."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from durableops import State, step, workflow
from durableops.clock import db_now
from durableops.engine import quotas
from durableops.engine.quotas import Owner
from durableops.upkeep import gates
from runs.models import Gate, PauseSwitch, Run, RunEvent, Worker
from tests.factories import make_plan, make_run, make_tenant, make_worker

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


class Counting(State):
    n: int = 0


def capped(owner: Owner, cap: int) -> None:
    quotas.set_quota(owner, {"running_cap": cap}, actor="ada", reason="at first")


def seen() -> set[tuple[str, str, int]]:
    return {(gate, subject.partition(":")[0], held) for gate, subject, held in Gate.objects.values_list(
        "gate", "subject", "held")}  # fmt: skip


def earlier(seconds: float) -> Any:
    return db_now() - timedelta(seconds=seconds)


def claim_of(run: Run) -> RunEvent:
    return RunEvent.objects.filter(run=run, event="claim").latest("id")


def test_each_gate_before_due_runs_is_seen_with_how_many_it_holds(database):
    acme, here = make_tenant(), make_worker(plans=None)
    capped(Owner(tenant=acme), 1)
    capped(Owner(resource="db-scan"), 0)
    make_run(state="running", worker=here)
    queued = [make_run(tenant=acme), make_run(tenant=acme), make_run(tenant=make_tenant("other"), resource="db-scan")]
    PauseSwitch.objects.create(
        scope="workflow", workflow=queued[0].workflow, actor="ada", reason="a deploy", at=db_now()
    )
    PauseSwitch.objects.create(scope="tenant", tenant=make_tenant("idle"), actor="ada", reason="?", at=db_now())
    assert gates.look(database) == 3
    assert seen() == {
        ("quota.tenant", "tenant", 2),
        ("quota.resource", "resource", 1),
        ("switch.workflow", "workflow", 3),
    }
    # Nobody has its plan any more, or nobody is there at all.
    Worker.objects.filter(pk=here.pk).update(plans=[make_plan("else").pk])
    gates.look(database)
    assert ("workers.version", "plan", 3) in seen()
    Worker.objects.filter(pk=here.pk).update(ended_at=db_now())
    gates.look(database)
    assert ("workers.none", "all", 3) in seen()


def test_what_is_seen_again_is_one_stretch_and_later_another(database):
    capped(Owner(tenant=make_tenant()), 0)
    make_worker(plans=None)
    make_run()
    assert [gates.look(database) for _ in range(2)] == [1, 0]
    Gate.objects.update(since=earlier(60), seen_at=earlier(30))
    assert gates.look(database) == 1
    assert Gate.objects.count() == 2
    Gate.objects.update(since=earlier(30 * 86400), seen_at=earlier(30 * 86400 - 1))
    gates.look(database)
    assert Gate.objects.count() == 1


def test_claim_tells_how_long_the_run_waited_and_what_held_it(engine):
    workflow(name="w", version=1, state=Counting)(type("W", (), {"a": step(id="a")(lambda run: None)}))
    capped(Owner(tenant=engine.tenant), 0)
    run = engine.start("w")
    Run.objects.filter(pk=run.pk).update(state_since=earlier(100), due_at=earlier(100))
    gates.look(engine.worker.database)
    Gate.objects.update(since=earlier(300), seen_at=earlier(40))
    capped(Owner(tenant=engine.tenant), 1)
    engine.drain()
    told = claim_of(run)
    assert told.data["waited"] > 99
    # Only while it waited, and only while it was seen.
    assert 59 < told.data["gates"]["quota.tenant"] <= told.data["waited"] - 39
    assert told.reason.startswith("waited 1")
    assert "held by quota.tenant for " in told.reason


def test_run_that_did_not_wait_tells_nothing(engine):
    workflow(name="w", version=1, state=Counting)(type("W", (), {"a": step(id="a")(lambda run: None)}))
    run = engine.start("w")
    Run.objects.filter(pk=run.pk).update(state_since=db_now() + timedelta(seconds=60))
    engine.drain()
    told = claim_of(run)
    assert (told.reason, "waited" in told.data) == ("", False)


def test_rate_that_sent_a_run_back_is_a_gate_with_its_time(engine):
    workflow(name="w", version=1, state=Counting)(type("W", (), {"a": step(id="a")(lambda run: None)}))
    run = engine.start("w")
    now = db_now()
    at = {"state_since": now - timedelta(seconds=50), "due_at": now - timedelta(seconds=20)}
    waited = at | {"wake_cause": "rate"}
    Run.objects.filter(pk=run.pk).update(**waited)
    engine.drain()
    told = claim_of(run)
    assert (told.data["gates"], told.data["waited"] >= 50) == ({"rate": 30.0}, True)

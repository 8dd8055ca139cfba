"""The claim: who is taken, in which order, by whom, and what is brought along."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs import claiming
from runs.claiming import claim
from runs.models import PauseSwitch, QuotaPolicy, Receipt, Run, RunEvent
from runs.states import State
from tests.factories import make_run, make_taker, make_tenant, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def take(database):
    """Claim through a connection of the engine's kind."""

    def take(worker, limit=1, **over):
        taker = make_taker(worker, **over)
        return database.retrying(lambda cursor: claim(cursor, taker, limit=limit))

    return take


def test_claim_raises_the_fence_names_the_worker_and_leaves_its_event(take):
    run, worker = make_run(fence=4), make_worker()
    [taken] = take(worker)
    run.refresh_from_db()
    assert (taken.run_id, taken.fence) == (run.pk, 5)
    assert (run.state, run.fence, run.worker_id, run.due_at) == ("running", 5, worker.pk, None)
    assert run.started_at is not None
    event = RunEvent.objects.get(run=run)
    assert (event.event, event.fence, event.worker_id) == ("claim", 5, worker.pk)
    assert not Receipt.objects.exists()


def test_claim_brings_the_state_byte_for_byte_with_its_plan_and_tenant(take):
    run = make_run(state_json='{"a": 1,  "b":2}', labels={"who": "x"})
    [taken] = take(make_worker())
    assert taken.state_json == '{"a": 1,  "b":2}'
    assert (taken.tenant, taken.workflow, taken.plan_version) == ("acme", "made", 1)
    assert taken.labels == {"who": "x"}
    assert taken.plan_hash == run.plan.plan_hash


def test_second_claim_of_a_run_counts_as_a_resume_with_a_receipt(take):
    run = make_run(started_at=now(), wake_cause="event", wake_detail="it came")
    [taken] = take(make_worker())
    assert (taken.resumes, taken.step_entries) == (1, 2)
    receipt = Receipt.objects.get(run=run)
    assert (receipt.number, receipt.cause, receipt.detail, receipt.entered_again) == (1, "event", "it came", True)


@pytest.mark.parametrize("state", [s for s in State if s is not State.QUEUED])
def test_only_queued_runs_are_claimed(take, state):
    make_run(state=state)
    assert take(make_worker()) == []


@pytest.mark.parametrize(
    "over",
    [
        {"paused": True},
        {"due_at": now() + timedelta(hours=1)},
        {"deadline_at": now() - timedelta(seconds=1)},  # C055
    ],
    ids=["paused", "not due", "past its deadline"],
)
def test_run_that_may_not_start_is_left(take, over):
    make_run(**over)
    assert take(make_worker()) == []


def test_most_urgent_then_longest_due_run_is_taken_first(take):
    late = make_run(due_at=now() - timedelta(seconds=5))
    early = make_run(due_at=now() - timedelta(seconds=50))
    urgent = make_run(priority=5)
    low = make_run(priority=-5, due_at=now() - timedelta(days=1))
    worker = make_worker()
    order = [take(worker)[0].run_id for _ in range(4)]
    assert order == [urgent.pk, early.pk, late.pk, low.pk]


@pytest.mark.parametrize(
    "switch",
    [
        {"scope": "all"},
        {"scope": "tenant", "tenant": True},
        {"scope": "workflow", "workflow": "made"},
        {"scope": "workflow", "workflow": "made", "tenant": True},
    ],
    ids=["all", "tenant", "workflow", "workflow of tenant"],
)
def test_nothing_is_claimed_under_a_switch_that_covers_it(take, switch):
    make_run()
    tenant = make_tenant() if switch.pop("tenant", False) else None
    made = PauseSwitch.objects.create(actor="a", reason="r", tenant=tenant, **switch)
    assert take(make_worker()) == []
    made.delete()
    assert len(take(make_worker())) == 1


@pytest.mark.parametrize(
    "switch",
    [{"scope": "tenant"}, {"scope": "workflow", "workflow": "another"}, {"scope": "workflow", "workflow": "made"}],
    ids=["other tenant", "other workflow", "same workflow of another tenant"],
)
def test_switch_of_others_stops_nobody(take, switch):
    run = make_run()
    tenant = None if switch.get("workflow") == "another" else make_tenant("other")
    PauseSwitch.objects.create(actor="a", reason="r", tenant=tenant, **switch)
    assert [taken.run_id for taken in take(make_worker())] == [run.pk]


@pytest.mark.parametrize("over", [{"ended": "its process was killed"}, {"draining": True}])
def test_worker_that_has_ended_or_drains_gets_nothing(take, over):
    make_run()
    assert take(make_worker(**over)) == []


def test_worker_nobody_registered_gets_nothing(take):
    make_run()
    worker = make_worker()
    worker.delete()
    worker.pk = make_run().pk
    assert take(worker) == []


def test_batch_takes_as_many_as_asked_and_each_once(take):
    runs = {make_run().pk for _ in range(5)}
    worker = make_worker()
    first, second = take(worker, limit=3), take(worker, limit=3)
    assert (len(first), len(second)) == (3, 2)
    assert {taken.run_id for taken in first + second} == runs


def test_tenants_take_turns_however_long_the_queue_of_one_is(take):
    crowded, small, last = make_tenant("crowded"), make_tenant("small"), make_tenant("last")
    for _ in range(20):
        make_run(tenant=crowded, priority=100, due_at=now() - timedelta(days=1))
    make_run(tenant=small)
    for _ in range(3):
        make_run(tenant=last)
    worker = make_worker()
    batch = [taken.tenant for taken in take(worker, limit=6)]
    assert sorted(batch) == ["crowded"] * 2 + ["last"] * 2 + ["small"]
    # One at a time, as a worker that finishes runs: from the tenant served last on, and round again.
    served, after = [], small.pk
    for _ in range(4):
        [taken] = take(worker, after_tenant=after)
        served.append(taken.tenant)
        after = taken.tenant_id
    assert served == ["last", "crowded", "crowded", "crowded"]


def test_batch_of_one_tenant_takes_all_it_may(take):
    for _ in range(7):
        make_run()
    assert len(take(make_worker(), limit=5)) == 5


def test_tenant_whose_runs_are_all_locked_does_not_stop_the_others(take, second):
    locked, free = make_run(tenant=make_tenant("a")), make_run(tenant=make_tenant("b"))
    with second.transaction():
        second.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [locked.pk])
        assert [taken.run_id for taken in take(make_worker())] == [free.pk]


@pytest.mark.parametrize("isolated", [False, True])
def test_each_kind_of_worker_takes_its_own_kind_of_run(take, isolated):
    runs = {kind: make_run(isolated=kind) for kind in (False, True)}
    assert [taken.run_id for taken in take(make_worker(), limit=5, isolated=isolated)] == [runs[isolated].pk]


def test_claim_that_finds_nothing_tells_whether_one_that_keeps_to_quotas_may(database):
    taker = make_taker(make_worker(), gated=False)
    assert take_once(database, taker).gates is False
    make_run(resource="db-scan")
    taker = make_taker(make_worker(), gated=False)
    told = take_once(database, taker)
    assert (told.runs, told.gates) == ([], True)
    Run.objects.update(state="cancelled", due_at=None, finished_at=now())
    QuotaPolicy.objects.create(tenant=make_tenant(), updated_by="ann")
    assert take_once(database, taker).gates is True


def take_once(database, taker):
    return database.retrying(lambda cursor: claiming.take(cursor, taker))

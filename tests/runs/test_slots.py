"""Places under a cap: given with the claim, freed with the hold, never one too many, whoever claims at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection

from durableops.engine.database import Database
from durableops.engine.quotas import Owner, set_quota
from runs import claiming, turns
from runs.claiming import claim
from runs.models import Run, RunEvent, Slot, Tenant
from runs.states import TRANSITIONS
from runs.transitions import fire
from tests.factories import make_run, make_taker, make_tenant, make_worker, now
from tests.fixtures.engine import Background, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

GATE = 770_001


def cap(tenant: Tenant, number: int | None) -> None:
    set_quota(Owner(tenant=tenant), {"running_cap": number}, actor="tests", reason="to try it")


def cap_resource(name: str, number: int | None) -> None:
    set_quota(Owner(resource=name), {"running_cap": number}, actor="tests", reason="to try it")


@pytest.fixture
def take(database):
    worker = make_worker()

    def take(limit=10, **over):
        taker = make_taker(worker, **over)
        return database.retrying(lambda cursor: claim(cursor, taker, limit=limit))

    return take


def running(tenant: Tenant) -> int:
    return Run.objects.filter(tenant=tenant, state="running").count()


def slots_of(tenant: Tenant) -> list[int]:
    rows = Run.objects.filter(tenant=tenant, state="running").values_list("slot", flat=True)
    return sorted(slot for slot in rows if slot is not None)


@contextmanager
def stale_claim(second: psycopg.Connection[Any], *, limit: int = 10, **over: Any) -> Iterator[Background]:
    """A claim that has looked at the record already, and is held up before it takes anything until the block ends."""
    chosen = turns.gated(f"pg_advisory_xact_lock({GATE}) IS NOT NULL")
    late = f"WITH RECURSIVE {claiming._ctes(chosen, 'exact')} SELECT * FROM following"
    params = make_taker(make_worker(), **over).params(limit)
    database = Database(name="stale claim")

    def work() -> list[Any]:
        with database.cursor() as cursor:
            cursor.execute(late, params)
            return cursor.fetchall()

    with second.transaction():
        second.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        held_up = Background(work)
        until_blocked()
        yield held_up
    held_up.result()
    database.close()


def test_tenant_runs_no_more_than_its_cap_and_each_has_a_number(take):  # C074
    tenant = make_tenant()
    for _ in range(5):
        make_run(tenant=tenant)
    cap(tenant, 2)
    taken = take()
    assert sorted(one.slot for one in taken) == [1, 2]
    assert slots_of(tenant) == [1, 2]
    assert take() == []
    told = RunEvent.objects.filter(event="claim").order_by("id").values_list("data__slot", flat=True)
    assert sorted(told) == [1, 2]


def test_tenant_without_a_policy_takes_no_slot(take):
    make_run()
    [taken] = take()
    assert (taken.slot, taken.resource_slot, taken.weight) == (None, None, 1)
    assert not Slot.objects.exists()


@pytest.mark.parametrize("event", sorted(e for e, edge in TRANSITIONS.items() if "running" in edge.sources))
def test_slot_is_free_again_whatever_ends_the_hold(take, event):  # C077
    tenant = make_tenant()
    first, second = make_run(tenant=tenant, resource="scan"), make_run(tenant=tenant, resource="scan")
    cap(tenant, 1)
    cap_resource("scan", 1)
    [taken] = take()
    assert (taken.slot, taken.resource_slot) == (1, 1)
    assert take() == []
    fire(event, taken.run_id)
    left = Run.objects.get(pk=taken.run_id)
    assert (left.slot, left.resource_slot) == (None, None)
    [following] = take(limit=1)
    assert following.run_id in {first.pk, second.pk}
    assert (following.slot, following.resource_slot) == (1, 1)


def test_run_that_is_not_running_never_has_a_slot():
    waiting = make_run(state="waiting")
    with pytest.raises(Exception, match="run_slots_only_while_running"):
        Run.objects.filter(pk=waiting.pk).update(slot=1)


def test_full_tenant_is_gone_past_and_costs_the_others_no_turn(take):
    full = [make_tenant(f"full-{n}") for n in range(6)]
    for tenant in full:
        make_run(tenant=tenant)
        cap(tenant, 0)
    free = make_run(tenant=make_tenant("free"))
    assert [one.run_id for one in take(limit=1)] == [free.pk]


def test_any_number_of_paused_tenants_stops_nobody(take):  # C085
    from runs.models import PauseSwitch

    for n in range(12):
        paused = make_tenant(f"paused-{n}")
        make_run(tenant=paused)
        PauseSwitch.objects.create(scope="tenant", tenant=paused, actor="a", reason="r")
    made = make_tenant("stopped-workflow")
    make_run(tenant=made)
    PauseSwitch.objects.create(scope="workflow", workflow="made", tenant=made, actor="a", reason="r")
    free = make_run(tenant=make_tenant("zz-free"))
    assert [one.run_id for one in take(limit=1)] == [free.pk]


def test_cap_below_what_runs_ends_nothing_and_lets_nothing_in_until_it_fits(take):
    tenant = make_tenant()
    for _ in range(8):
        make_run(tenant=tenant)
    cap(tenant, 4)
    taken = take()
    assert len(taken) == 4
    cap(tenant, 2)
    assert running(tenant) == 4
    for one, runs_then in zip(sorted(taken, key=lambda one: one.slot), (3, 2), strict=False):
        fire("succeed", one.run_id)
        assert take() == []
        assert running(tenant) == runs_then
    fire("succeed", max(taken, key=lambda one: one.slot).run_id)
    assert len(take()) == 1
    assert running(tenant) == 2


def test_runs_from_before_the_cap_count_although_they_have_no_slot(take):
    tenant = make_tenant()
    for _ in range(4):
        make_run(tenant=tenant)
    before = take(limit=2)
    assert [one.slot for one in before] == [None, None]
    cap(tenant, 3)
    assert len(take()) == 1
    assert running(tenant) == 3


def test_cap_of_zero_lets_nothing_start_and_no_cap_everything(take):  # C086
    tenant = make_tenant()
    for _ in range(3):
        make_run(tenant=tenant)
    cap(tenant, 0)
    assert take() == []
    cap(tenant, None)
    assert [one.slot for one in take()] == [None] * 3
    assert not Slot.objects.exists()


def test_resource_is_shared_by_all_tenants_and_stops_only_those_that_use_it(take):
    one, other = make_tenant("one"), make_tenant("other")
    cap_resource("scan", 2)
    for tenant in (one, other):
        for _ in range(2):
            make_run(tenant=tenant, resource="scan", priority=50)
    free = make_run(tenant=one)
    taken = take() + take()
    assert sorted(c.resource_slot for c in taken if c.resource) == [1, 2]
    assert free.pk in {c.run_id for c in taken}
    assert len(taken) == 3


def test_tenant_is_served_from_the_queue_with_its_most_urgent_run(take):
    cap_resource("scan", 5)
    plain, urgent = make_run(priority=1), make_run(priority=9, resource="scan")
    assert [take(limit=1)[0].run_id for _ in range(2)] == [urgent.pk, plain.pk]


def test_resource_without_a_policy_has_no_cap(take):
    for _ in range(3):
        make_run(resource="scan")
    assert [one.resource_slot for one in take()] == [None] * 3


def test_run_under_both_caps_needs_a_place_under_each(take):
    tenant = make_tenant()
    cap(tenant, 3)
    cap_resource("scan", 1)
    for _ in range(3):
        make_run(tenant=tenant, resource="scan")
    for _ in range(3):
        make_run(tenant=tenant, priority=-1)
    while take():
        pass
    assert running(tenant) == 3
    assert Run.objects.filter(state="running", resource="scan").count() == 1


def test_claim_whose_look_is_out_of_date_takes_no_slot_that_was_taken_since(take, second):  # C074
    tenant = make_tenant()
    for _ in range(4):
        make_run(tenant=tenant)
    cap(tenant, 2)
    with stale_claim(second) as late:
        assert len(take()) == 2
    assert late.value == []
    assert slots_of(tenant) == [1, 2]


def test_claim_whose_look_is_out_of_date_knows_no_cap_that_was_lowered_since(take, second):
    tenant = make_tenant()
    for _ in range(4):
        make_run(tenant=tenant)
    cap(tenant, 4)
    with stale_claim(second) as late:
        cap(tenant, 1)
    assert late.value == []
    assert len(take()) == 1


def test_two_claims_while_a_cap_drains_leave_the_same_places_alone(take, second):
    """One looks early and takes late. It may not take what the overhang of a lowered cap still needs."""
    tenant = make_tenant()
    for _ in range(9):
        make_run(tenant=tenant)
    cap(tenant, 4)
    taken = {one.slot: one.run_id for one in take()}
    cap(tenant, 3)
    fire("succeed", taken[2])
    fire("succeed", taken[3])
    # Two run, one of them past the cap: there is room for one.
    with stale_claim(second) as late:
        fire("succeed", taken[1])
        assert len(take()) == 2
    assert len(late.value) == 0
    assert running(tenant) == 3


def test_two_claims_at_once_share_the_places_and_neither_waits(take, second):
    tenant = make_tenant()
    for _ in range(4):
        make_run(tenant=tenant)
    cap(tenant, 3)
    with second.transaction():
        rows = second.execute(
            "SELECT id FROM runs_slot WHERE number = 1 FOR UPDATE",
        ).fetchall()
        assert len(rows) == 1
        assert sorted(one.slot for one in take()) == [2, 3]
    assert [one.slot for one in take()] == [1]


PROOF = """
CREATE FUNCTION pg_temp_prove_cap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(770002);
    IF (SELECT count(*) FROM runs_run r WHERE r.tenant_id = NEW.tenant_id AND r.state = 'running')
       > (SELECT p.running_cap FROM runs_quota_policy p WHERE p.tenant_id = NEW.tenant_id) THEN
        RAISE EXCEPTION 'more run than the cap allows';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER prove_cap AFTER UPDATE OF state ON runs_run DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION pg_temp_prove_cap();
"""


@pytest.fixture
def proof() -> Iterator[None]:
    """Counts at each commit, one commit after the other: a claim that made too many run would be refused there."""
    with connection.cursor() as cursor:
        cursor.execute(PROOF)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER prove_cap ON runs_run; DROP FUNCTION pg_temp_prove_cap()")


def test_no_commit_of_claims_that_race_exceeds_the_cap(proof):  # C074
    """Four connections claim and let go of one tenant's runs, in no order, while the cap moves up and down."""
    tenant = make_tenant()
    for _ in range(40):
        make_run(tenant=tenant)
    cap(tenant, 3)
    ended: list[Any] = []
    over = threading.Event()

    def work() -> int:
        database, worker, most = Database(name="racer"), make_worker(), 0
        taker = make_taker(worker)
        try:
            while not over.is_set():
                for one in database.retrying(lambda cursor: claim(cursor, taker, limit=2)):
                    with database.cursor() as cursor:
                        fire("succeed", one.run_id, using=cursor)
                    ended.append(one.run_id)
        finally:
            database.close()
        return most

    racers = [Background(work) for _ in range(4)]
    try:
        for number in (5, 1, 4, 2, 6, 1, 3):
            seen = len(ended)
            cap(tenant, number)
            waited = now()
            while len(ended) < min(40, seen + 4) and (now() - waited).total_seconds() < 20:
                assert all(racer.is_alive() for racer in racers), [racer.error for racer in racers]
    finally:
        over.set()
        for racer in racers:
            racer.result()
    assert len(ended) == len(set(ended)) >= 28


def test_what_waits_for_its_cap_is_not_counted_as_claimable(take, database):
    def count(isolated: bool = False) -> int:
        return database.retrying(lambda cursor: claiming.claimable(cursor, isolated=isolated, most=5))

    full, roomy, free = make_tenant("full"), make_tenant("roomy"), make_tenant("free")
    for tenant in (full, roomy, free):
        for _ in range(3):
            make_run(tenant=tenant)
    cap(full, 0)
    cap(roomy, 1)
    assert count() == 4
    assert count(isolated=True) == 0
    while take():
        pass
    assert count() == 0
    for _ in range(9):
        make_run(tenant=free)
    assert count() == 5

"""Quotas as people set them: what is refused, what is kept about it, and that it is in force at once."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection

from durableops import State, step, workflow
from durableops.engine.quotas import Owner, find, set_quota
from durableops.errors import InputRefused, QuotaConflict, QuotaUnsafe
from runs.models import AuditEntry, QuotaPolicy, Run, Slot
from tests.factories import events_of, make_tenant, make_worker
from tests.fixtures.engine import Background, holding, until_blocked

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]
SAID: dict[str, Any] = {"actor": "ada", "reason": "the database is small"}


class Nothing(State):
    pass


def of(slug: str = "acme") -> Owner:
    return Owner(tenant=make_tenant(slug))


def test_change_is_kept_with_who_why_before_and_after():
    set_quota(of(), {"running_cap": 4, "weight": 2}, **SAID)
    set_quota(of(), {"running_cap": 1}, **SAID)
    policy = find(of())
    assert policy is not None
    assert (policy.running_cap, policy.weight, policy.version, policy.updated_by) == (1, 2, 2, "ada")
    first, second = AuditEntry.objects.filter(target_kind="quota tenant", target_id="acme").order_by("id")
    assert (first.actor, first.reason, first.verb) == ("ada", "the database is small", "set_quota")
    assert (second.before, second.after) == ({"running_cap": 4, "version": 1}, {"running_cap": 1, "version": 2})


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"running_cap": -1}, {"running_cap": 10_001}, {"running_cap": 2.5}, {"running_cap": True},
        {"running_cap": "4"}, {"weight": 0}, {"weight": None}, {"weight": 101}, {"priority_min": -101},
        {"priority_max": 101}, {"priority_min": 5, "priority_max": 4}, {"speed": 9}, {"version": 7},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_changes_nothing(changes):
    set_quota(of(), {"running_cap": 4}, **SAID)
    with pytest.raises(InputRefused):
        set_quota(of(), changes, **SAID)
    policy = find(of())
    assert policy is not None
    assert (policy.running_cap, policy.version) == (4, 1)
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize("changes", [{"weight": 3}, {"priority_max": 3}], ids=str)
def test_resource_has_a_cap_and_nothing_that_is_a_tenants(changes):
    with pytest.raises(InputRefused, match="has no"):
        set_quota(Owner(resource="scan"), changes, **SAID)
    set_quota(Owner(resource="scan"), {"running_cap": 3}, **SAID)
    assert Slot.objects.filter(policy__resource="scan").count() == 3


def test_change_made_from_an_older_version_is_refused():
    assert set_quota(of(), {"running_cap": 4}, made_from=0, **SAID).version == 1
    with pytest.raises(QuotaConflict, match="somebody was quicker"):
        set_quota(of(), {"running_cap": 5}, made_from=0, **SAID)
    assert set_quota(of(), {"running_cap": 5}, made_from=1, **SAID).version == 2


def test_two_first_changes_at_once_make_one_policy(second):
    tenant = make_tenant()
    with holding(second, "SELECT 1 FROM runs_tenant WHERE id = %s FOR UPDATE", [tenant.pk]):
        both = [Background(lambda: set_quota(of(), {"running_cap": 2}, **SAID)) for _ in range(2)]
        until_blocked(count=2)
    assert sorted(one.result().version for one in both) == [1, 2]
    assert QuotaPolicy.objects.count() == 1
    assert Slot.objects.count() == 2


def test_slots_are_as_many_as_the_cap_through_all_its_changes():
    for number, slots in ((3, 3), (5, 5), (2, 2), (0, 0), (4, 4), (None, 0)):
        set_quota(of(), {"running_cap": number}, **SAID)
        assert sorted(Slot.objects.values_list("number", flat=True)) == list(range(1, slots + 1))


def test_cap_is_refused_while_a_worker_lives_that_keeps_to_none():  # C088
    old = make_worker(takes_slots=False)
    with pytest.raises(QuotaUnsafe, match="older version"):
        set_quota(of(), {"running_cap": 3}, **SAID)
    assert find(of()) is None
    set_quota(of(), {"weight": 3}, **SAID)
    type(old).objects.filter(pk=old.pk).update(ended_at=old.started_at, ended_why="stopped")
    set_quota(of(), {"running_cap": 3}, **SAID)


OLD_REGISTRATION = """
INSERT INTO runs_worker (id, number, host, pid, child_pid, counter, lease_seconds, heartbeat_seconds, draining,
    ended_why, versions)
VALUES (gen_random_uuid(), nextval('runs_worker_number'), 'old', 1, 0, 0, 10, 1, false, '', '{}')"""


def test_worker_from_before_quotas_cannot_register_once_there_is_a_cap():  # C088
    def register() -> None:
        with connection.cursor() as cursor:
            cursor.execute(OLD_REGISTRATION)

    register()
    connection.cursor().execute("UPDATE runs_worker SET ended_at = now()")
    set_quota(of(), {"running_cap": 3}, **SAID)
    with pytest.raises(DatabaseError, match="older than the caps"):
        register()
    set_quota(of(), {"running_cap": None}, **SAID)
    register()


def test_cap_is_in_force_for_workers_that_run_already(engine):
    """A worker that has known no quotas so far asks the record, not its memory."""
    active: list[int] = []

    @workflow(name="short", version=1, state=Nothing)
    class Short:
        @step
        def only(run: Any):
            active.append(Run.objects.filter(state="running").count())

    engine.run("short")
    set_quota(Owner(tenant=engine.tenant), {"running_cap": 0}, **SAID)
    held_back = [engine.start("short") for _ in range(3)]
    engine.drain()
    assert len(active) == 1
    set_quota(Owner(tenant=engine.tenant), {"running_cap": 1}, **SAID)
    engine.drain()
    assert active == [1, 1, 1, 1]
    for run in held_back:
        run.refresh_from_db()
        assert (run.state, run.slot) == ("succeeded", None)


def test_step_that_uses_a_resource_has_a_place_under_its_cap_and_gives_it_back_with_the_step(engine):
    seen: dict[str, tuple[str, int | None]] = {}

    def look(name: str, run_id: str) -> None:
        row = Run.objects.get(pk=run_id)
        seen[name] = (row.resource, row.resource_slot)

    @workflow(name="scanner", version=1, state=Nothing)
    class Scanner:
        @step
        def before(run: Any):
            look("before", run.id)

        @step(uses="db-scan")
        def scan(run: Any):
            look("scan", run.id)

        @step(uses="db-scan")
        def again(run: Any):
            look("again", run.id)

        @step
        def after(run: Any):
            look("after", run.id)

    set_quota(Owner(resource="db-scan"), {"running_cap": 1}, **SAID)
    run = engine.run("scanner")
    assert run.state == "succeeded"
    assert seen == {"before": ("", None), "scan": ("db-scan", 1), "again": ("db-scan", 1), "after": ("", None)}
    # One resume, at the boundary where the place was needed; it ran no step a second time.
    assert events_of(run).count("claim") == 2
    assert run.receipts.get().cause == "resource"
    assert run.receipts.get().entered_again is False


def test_run_whose_first_step_uses_a_full_resource_waits_and_others_go_by(engine):
    @workflow(name="scan-first", version=1, state=Nothing)
    class ScanFirst:
        @step(uses="db-scan")
        def scan(run: Any):
            return 1

    @workflow(name="plain", version=1, state=Nothing)
    class Plain:
        @step
        def only(run: Any):
            return 1

    set_quota(Owner(resource="db-scan"), {"running_cap": 0}, **SAID)
    waits, goes = engine.start("scan-first"), engine.start("plain")
    engine.drain()
    waits.refresh_from_db()
    goes.refresh_from_db()
    assert (waits.state, goes.state) == ("queued", "succeeded")
    set_quota(Owner(resource="db-scan"), {"running_cap": 1}, **SAID)
    engine.drain()
    waits.refresh_from_db()
    assert waits.state == "succeeded"


def test_parents_that_wait_for_children_leave_them_their_places(engine):  # C079
    @workflow(name="kid", version=1, state=Nothing)
    class Kid:
        @step
        def only(run: Any):
            return 1

    @workflow(name="folks", version=1, state=Nothing)
    class Folks:
        @step
        def only(run: Any):
            return len(run.children("kid", [{}]))

    set_quota(Owner(tenant=engine.tenant), {"running_cap": 3}, **SAID)
    folks = [engine.start("folks") for _ in range(3)]
    for _ in range(4):
        engine.drain()
        engine.rounds()
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}
    assert Run.objects.count() == 2 * len(folks)


def test_place_is_free_after_every_wait_and_resume(engine):  # C079
    """A hundred rounds of a poll: each gives the place back and takes one again."""

    @workflow(name="sleeper", version=1, state=Nothing)
    class Sleeper:
        @step
        def only(run: Any):
            for n in range(20):
                run.sleep(60, key=str(n))

    set_quota(Owner(tenant=engine.tenant), {"running_cap": 2}, **SAID)
    sleepers = [engine.start("sleeper") for _ in range(5)]
    engine.drain()
    for _ in range(20):
        for run in sleepers:
            assert Run.objects.filter(slot__isnull=False).count() == 0
            engine.go_on(run)
    assert set(Run.objects.values_list("state", flat=True)) == {"succeeded"}


@pytest.mark.parametrize("places", [1])  # with more, nobody has to wait for a turn
def test_tenant_of_weight_three_has_three_turns_where_another_has_one(engine):
    order: list[str] = []

    @workflow(name="turn", version=1, state=Nothing)
    class Turn:
        @step
        def only(run: Any):
            order.append(run.tenant)

    heavy, light = make_tenant("heavy"), make_tenant("light")
    set_quota(Owner(tenant=heavy), {"weight": 3}, **SAID)
    for _ in range(9):
        engine.start("turn", tenant=heavy)
        engine.start("turn", tenant=light)
    engine.drain()
    assert len(order) == 18
    assert 5 <= order[:8].count("heavy") <= 7

"""The claim of lanes: heads only, nothing skipped, nothing scanned, destinations that rest, and turns for all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from durableops import NotSent, Retry
from durableops.engine import commands
from durableops.engine.database import Database
from durableops.engine.relaying.relay import Relay
from runs import relaying
from runs.models import OutboxDestination, OutboxLane, Run
from runs.relaying import FAILURES, Place, Taker
from tests.engine.relaying.conftest import (
    Receiver,
    declare,
    let_destinations_rest_enough,
    let_lanes_be_due,
    rest_of,
    states,
)
from tests.factories import make_lane, make_message, make_run, make_tenant, make_worker, now

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]

OFTEN = Retry(max_attempts=20, first_delay=0.001, factor=1, jitter=0.0)


def claim(database: Database, **over: Any) -> relaying.Claimed:
    """One claim by a relay that knows `mail` and `other`."""
    values: dict[str, Any] = {
        "relay_id": over.pop("relay_id", None) or make_worker(kind="relay").pk,
        "known": ("mail", "other"), "after": Place(), "slots": 10, "share": 10, "under_way": {}, "probe_seconds": 60.0,
    }  # fmt: skip
    taker = Taker(**(values | over))

    def work(cursor: Any) -> relaying.Claimed:
        relaying.send_claim(cursor, taker)
        return relaying.claimed(cursor)

    return database.retrying(work)


# Heads only.


def test_only_the_head_of_each_lane_is_taken(database):
    runs = [make_run() for _ in range(3)]
    heads = {make_message(run).pk for run in runs}
    for run in runs:
        make_message(run)
    assert {each.message_id for each in claim(database).taken} == heads
    assert claim(database).taken == []


def test_relay_that_has_ended_takes_nothing(database):
    make_message(make_run())
    gone = make_worker(kind="relay", ended="stopped").pk
    assert claim(database, relay_id=gone).taken == []


def test_lane_is_not_taken_before_it_is_due_or_while_it_is_held(database):
    later, held = make_message(make_run()), make_message(make_run(), state="poisoned")
    OutboxLane.objects.filter(pk=later.lane_id).update(due_at=now() + timedelta(hours=1))
    make_message(held.lane.run)
    assert claim(database).taken == []


# Nothing is scanned.


def test_claim_reads_neither_history_nor_other_lanes(database):
    run = make_run()
    with connection.cursor() as cursor:
        # A destination that rests, with thousands of lanes; thousands of finished lanes and messages; a long backlog.
        cursor.execute(
            "INSERT INTO runs_run (id, tenant_id, workflow, plan_id, state, input_hash, created_by, step_id, worker_id,"
            " state_since, due_at, created_at, priority, labels, fence, isolated, paused, paused_by, cancel_requested,"
            " cancel_requested_by, cancel_reason, lineage, head_seq, state_seq, step_entries, step_attempts,"
            " recoveries, max_recoveries, resumes, wake_cause, wake_detail, effects_avoided, progress_note,"
            " error_class, error_message, error_fingerprint, finished_at)"
            " SELECT gen_random_uuid(), tenant_id, workflow, plan_id, 'succeeded', input_hash, created_by, '', NULL,"
            " now(), NULL, now(), 0, '{}', 0, false, false, '', false, '', '', 1, 0, 0, 1, 0, 0, 5, 0, '', '', 0, '',"
            " '', '', '', now() FROM runs_run, generate_series(1, 6000) WHERE id = %s",
            [run.pk],
        )
        cursor.execute(
            "INSERT INTO runs_outbox_lane (run_id, tenant_id, destination, depth, due_at)"
            " SELECT id, tenant_id, CASE WHEN n % 2 = 0 THEN 'other' ELSE 'mail' END, (n % 2 = 0)::int, now() -"
            " interval '1 hour' FROM (SELECT id, tenant_id, row_number() OVER () AS n FROM runs_run) x"
        )
    OutboxDestination.objects.create(
        tenant=run.tenant, name="other", failures=9, failing_since=now(), open_until=now() + timedelta(hours=1)
    )
    head = make_message(run)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runs_outbox_message (lane_id, effect_id, tenant_id, state, on_poison, attempts, sendings,"
            " created_at, finished_at, error_class, error_message)"
            " SELECT l.id, %s, l.tenant_id, CASE WHEN l.depth = 0 THEN 'delivered' ELSE 'pending' END, 'hold', 1, 1,"
            " now(), CASE WHEN l.depth = 0 THEN now() END, '', '' FROM runs_outbox_lane l WHERE l.id <> %s",
            [head.effect_id, head.lane_id],
        )
        cursor.execute("ANALYZE")
    OutboxLane.objects.filter(pk=head.lane_id).update(due_at=now())
    plan = explained(database)
    assert plan["rows"] <= 50
    assert plan["scanned"] == {"runs_outbox_lane": "Index", "runs_outbox_message": "Index"}


def explained(database: Database) -> dict[str, Any]:
    """How many rows of lanes and messages a claim touched, and how it came to them."""
    relay = make_worker(kind="relay").pk
    found: dict[str, Any] = {"rows": 0, "scanned": {}}

    def work(cursor: Any) -> None:
        real = relaying._CLAIM
        try:
            relaying._CLAIM = "EXPLAIN (ANALYZE, FORMAT JSON) " + real
            relaying.send_claim(
                cursor,
                Taker(relay_id=relay, known=("mail", "other"), after=Place(), slots=10, share=10, under_way={},
                      probe_seconds=60.0),
            )  # fmt: skip
        finally:
            relaying._CLAIM = real
        walk(cursor.fetchone()[0][0]["Plan"])

    def walk(node: dict[str, Any]) -> None:
        table = node.get("Relation Name")
        if table in ("runs_outbox_lane", "runs_outbox_message") and "Scan" in node["Node Type"]:
            touched = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            found["rows"] += touched * node["Actual Loops"]
            kind = "Index" if "Index" in node["Node Type"] or "Bitmap" in node["Node Type"] else node["Node Type"]
            if found["scanned"].get(table) in (None, "Index"):
                found["scanned"][table] = kind
        for child in node.get("Plans", []):
            walk(child)

    database.retrying(work)
    return found


# Turns.


def test_long_queue_of_one_tenant_does_not_delay_another(database):
    busy, quiet = make_tenant("busy"), make_tenant("quiet")
    for _ in range(12):
        make_message(make_run(tenant=busy))
    message = make_message(make_run(tenant=quiet))
    taken = claim(database, slots=4).taken
    assert message.pk in {each.message_id for each in taken}
    assert len(taken) == 3  # half of four each, and the quiet one has one only


def test_destinations_take_turns_when_there_is_one_free_place(database):
    for name in ("mail", "other"):
        for _ in range(3):
            make_message(run := make_run(), lane=make_lane(run, destination=name))
    relay, after, seen = make_worker(kind="relay").pk, Place(), []
    for _ in range(4):
        found = claim(database, relay_id=relay, slots=1, after=after)
        seen.append(found.taken[0].destination)
        after = found.after
    assert seen == ["mail", "other", "mail", "other"]


def test_one_destination_takes_no_more_than_its_share_of_a_relay(database):
    for _ in range(5):
        make_message(make_run())
    tenant = make_tenant().pk
    assert len(claim(database, share=3, under_way={(tenant, "mail"): 1}).taken) == 2
    assert claim(database, share=3, under_way={(tenant, "mail"): 3}).taken == []


def test_every_one_of_many_destinations_is_reached(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    for n in range(3 * relaying.TURNS):
        run = make_run(tenant=engine.tenant)
        make_message(run, lane=make_lane(run, destination=f"aaa-{n:03d}"))
    run = engine.run("post-mail", {"messages": ["z"]})
    make_relay().drain()
    assert states(run) == ["delivered"]


# Destinations that rest.


def failing(engine: Any, relay: Relay, receiver: Receiver, *, lanes: int) -> list[Run]:
    receiver.script = [NotSent("connection refused")] * 1000
    runs = [engine.run("post-mail", {"messages": ["a"]}) for _ in range(lanes)]
    for _ in range(FAILURES + 1):
        let_lanes_be_due()
        relay.drain()
    return runs


def test_destination_that_is_down_is_left_alone_and_does_not_spin_every_lane(engine, make_relay):
    receiver = Receiver()
    declare(receiver, retry=OFTEN)
    relay = make_relay(concurrency=2)
    failing(engine, relay, receiver, lanes=20)
    tried = len(receiver.got)
    assert tried <= 20 + FAILURES
    destination = OutboxDestination.objects.get()
    assert destination.failures >= FAILURES
    assert destination.error_message == "connection refused"
    assert rest_of() > 0
    for _ in range(5):
        let_lanes_be_due()
        relay.drain()
    assert len(receiver.got) == tried


def test_one_probe_at_a_time_finds_out_that_it_is_back(engine, make_relay):
    receiver = Receiver()
    declare(receiver, retry=OFTEN)
    relay = make_relay(concurrency=4)
    runs = failing(engine, relay, receiver, lanes=8)
    tried = len(receiver.got)
    receiver.script = [NotSent("connection refused")]
    let_destinations_rest_enough()
    let_lanes_be_due()
    relay.drain()
    assert len(receiver.got) == tried + 1
    receiver.script = []
    let_destinations_rest_enough()
    let_lanes_be_due()
    relay.drain()
    destination = OutboxDestination.objects.get()
    assert (destination.failures, destination.failing_since, destination.open_until) == (0, None, None)
    assert all(states(run) == ["delivered"] for run in runs)


def test_two_relays_probe_once(database, second):
    for _ in range(3):
        make_message(make_run())
    OutboxDestination.objects.create(
        tenant=make_tenant(), name="mail", failures=FAILURES, failing_since=now(), open_until=now()
    )
    first = claim(database)
    other = claim(database)
    assert len(first.taken) == 1
    assert other.taken == []


def test_probes_take_turns_among_the_lanes_so_that_one_bad_message_is_not_the_only_probe(engine, make_relay):
    receiver = Receiver()
    declare(receiver, retry=Retry(max_attempts=20, first_delay=30, factor=1, jitter=0))
    relay = make_relay(concurrency=1)
    for _ in range(FAILURES + 2):
        engine.run("post-mail", {"messages": ["a"]})
    receiver.script = [ValueError("down")] * 100
    relay.drain()
    assert len(receiver.got) == FAILURES
    for _ in range(2):
        let_destinations_rest_enough()
        relay.drain()
    assert len({run for run, *_ in receiver.got}) == FAILURES + 2


def test_destination_rests_longer_the_longer_it_fails(engine, make_relay):
    receiver = Receiver(ValueError("down"))
    declare(receiver, retry=OFTEN)
    relay = make_relay()
    engine.run("post-mail", {"messages": ["a"]})
    OutboxDestination.objects.create(
        tenant=engine.tenant, name="mail", failures=9, failing_since=now() - timedelta(seconds=100), open_until=now()
    )
    relay.drain()
    assert 75 < rest_of() < 121
    OutboxDestination.objects.update(failing_since=now() - timedelta(days=9), open_until=now())
    receiver.script = [ValueError("down")]
    let_lanes_be_due()
    relay.drain()
    assert rest_of() < 361


def test_refusal_of_one_message_says_nothing_about_the_destination(engine, make_relay):
    from durableops import Refused

    receiver = Receiver(*[Refused("no")] * 20)
    declare(receiver, on_poison="skip")
    engine.run("post-mail", {"messages": [str(n) for n in range(FAILURES + 2)]})
    make_relay().drain()
    assert len(receiver.got) == FAILURES + 2
    assert not OutboxDestination.objects.exists()


def test_destination_of_another_tenant_with_the_same_name_goes_on(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    OutboxDestination.objects.create(
        tenant=make_tenant("other"), name="mail", failures=9, failing_since=now(), open_until=now() + timedelta(hours=1)
    )
    run = engine.run("post-mail", {"messages": ["a"]})
    make_relay().drain()
    assert states(run) == ["delivered"]


# Stopped by people.


def test_stopped_destination_gets_nothing_until_it_goes_on(engine, make_relay):
    receiver = Receiver()
    declare(receiver)
    OutboxDestination.objects.create(tenant=engine.tenant, name="mail", stopped_by="ann", stopped_at=now())
    run = engine.run("post-mail", {"messages": ["a"]})
    relay = make_relay()
    relay.drain()
    assert receiver.got == []
    OutboxDestination.objects.update(stopped_by="", stopped_at=None)
    relay.drain()
    assert states(run) == ["delivered"]


@pytest.mark.parametrize("scope", ["all", "tenant"])
def test_nothing_leaves_under_a_switch_for_everything_or_for_the_tenant(engine, make_relay, scope):
    receiver = Receiver()
    declare(receiver)
    run = engine.run("post-mail", {"messages": ["a"]})
    tenant = engine.tenant if scope == "tenant" else None
    switch = commands.set_switch(scope, actor="ann", reason="fire", tenant=tenant)
    relay = make_relay()
    relay.drain()
    assert receiver.got == []
    commands.lift_switch(switch, actor="ann", reason="out")
    relay.drain()
    assert states(run) == ["delivered"]

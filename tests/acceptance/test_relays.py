"""Relays as processes: killed at each point, stopped and continued, several at once. The receiver counts (C038)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from durableops.engine import endpoints
from runs.models import OutboxLane, OutboxMessage, RunEvent, Worker
from tests.acceptance.pool import Desk, Pool, Told, relay_of
from tests.acceptance.processes import is_stopped, patiently
from tests.engine.relaying.web_receiver import WebReceiver, receiving

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def pool(broker: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """As elsewhere, but its upkeep relays nothing: each test brings its own relays."""
    found = Pool(
        tmp_path_factory.mktemp("pool"), DURABLEOPS_UPKEEP_RELAY_CONCURRENCY="0",
        DURABLEOPS_WEBHOOK_ALLOW="127.0.0.1/32", DURABLEOPS_RELAY_POLL_SECONDS="0.2",
    )  # fmt: skip
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


@pytest.fixture
def receiver() -> Iterator[WebReceiver]:
    with receiving() as found:
        yield found


def posted(desk: Desk, receiver: WebReceiver, *, n: int = 1) -> Told:
    run = desk.start("acc-post", n=n, what=receiver.url)
    run.until("succeeded")
    return run


def all_delivered(*runs: Told) -> bool:
    return (
        not OutboxMessage.objects.filter(lane__run_id__in=[run.pk for run in runs]).exclude(state="delivered").exists()
    )


def arrivals(receiver: WebReceiver) -> dict[str, int]:
    """How often each key arrived."""
    keys = [each.headers["idempotency-key"] for each in receiver.got]
    return {key: keys.count(key) for key in keys}


@pytest.mark.parametrize(
    ("point", "arrived", "repeats"),
    [
        ("relay_before_send", [1, 1], {1}),
        ("relay_after_send", [1, 2], {1}),
        # With the outcome of the first, the second was claimed: it may have been on its way.
        ("relay_after_settle", [1, 1], {0, 1}),
    ],
)
def test_relay_killed_at_any_point_loses_nothing_and_every_repeat_is_told(
    pool: Pool, desk: Desk, receiver: WebReceiver, point: str, arrived: list[int], repeats: set[int]
):
    run = posted(desk, receiver)
    doomed = pool.visiting_relay(failpoints=f"{point}=kill", DURABLEOPS_RELAY_CONCURRENCY="1")
    assert doomed.ended() == -signal.SIGKILL
    pool.visiting_relay()
    patiently(lambda: all_delivered(run), hoping_for="both messages delivered")
    assert sorted(arrivals(receiver).values()) == arrived
    told = [event.data["effects"] for event in RunEvent.objects.filter(run_id=run.pk, event="effects_repeated")]
    assert len(told) in repeats
    twice = [effect for effect in run.effects() if arrivals(receiver)[effect.key] > 1]
    assert all([effect.pk] in told for effect in twice)


def test_relay_that_stood_still_past_its_lease_marks_nothing(pool: Pool, desk: Desk, receiver: WebReceiver):
    """Two relays, many rows; the first is stopped with a batch in its hand and continued after the other is done."""
    runs = [posted(desk, receiver, n=3) for _ in range(4)]
    first = pool.visiting_relay(failpoints="relay_after_send=stop@2", DURABLEOPS_RELAY_CONCURRENCY="8")
    patiently(lambda: is_stopped(first.pid), hoping_for="the first relay to stand still")
    in_hand = OutboxLane.objects.filter(relay__pid=first.pid, claimed_at__isnull=False).count()
    assert in_hand > 0
    pool.visiting_relay()
    patiently(lambda: all_delivered(*runs), hoping_for="everything delivered by the second relay")
    before = list(OutboxMessage.objects.order_by("id").values("id", "state", "attempts", "finished_at"))
    lost = Worker.objects.get(pid=first.pid, kind="relay")
    assert lost.ended_at is not None

    first.send(signal.SIGCONT)
    patiently(lambda: relay_of(first) is not None, hoping_for="the first relay to begin anew")
    first.send(signal.SIGTERM)
    assert first.ended() == 0
    assert list(OutboxMessage.objects.order_by("id").values("id", "state", "attempts", "finished_at")) == before

    counted = arrivals(receiver)
    assert len(counted) == 24
    # At most what was in its hand came twice, each told, each under its one key.
    twice = {key for key, times in counted.items() if times > 1}
    assert set(counted.values()) <= {1, 2}
    assert len(twice) <= in_hand
    told = {event.data["keys"][0] for event in RunEvent.objects.filter(run_id__in=[r.pk for r in runs],
                                                                       event="effects_repeated")}  # fmt: skip
    assert twice <= told


def test_four_relays_keep_the_order_of_each_lane(pool: Pool, desk: Desk, receiver: WebReceiver):
    for _ in range(4):
        pool.visiting_relay(DURABLEOPS_RELAY_CONCURRENCY="4")
    runs = [desk.start("acc-post", n=5, what=f"{receiver.url}/{number}") for number in range(8)]
    for run in runs:
        run.until("succeeded")
    patiently(lambda: all_delivered(*runs), hoping_for="everything delivered")
    wanted = [f"{step}-{number}" for step in ("first", "second") for number in range(5)]
    for number, run in enumerate(runs):
        by_key = {effect.key: effect.resource for effect in run.effects()}
        got = [each.headers["idempotency-key"] for each in receiver.got if each.path.endswith(f"/{number}")]
        assert [by_key[key] for key in got] == wanted
        assert "effects_repeated" not in run.events()


def test_relay_that_is_asked_to_stop_lets_what_is_under_way_finish(pool: Pool, desk: Desk, receiver: WebReceiver):
    def slowly(handler: object) -> None:
        time.sleep(1.0)
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.send_header("content-length", "0")  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]

    receiver.script = [slowly]
    relay = pool.visiting_relay()
    run = posted(desk, receiver)
    patiently(lambda: len(receiver.got) == 1, hoping_for="the first message under way")
    relay.send(signal.SIGTERM)
    assert relay.ended() == 0
    states = list(OutboxMessage.objects.filter(lane__run_id=run.pk).order_by("id").values_list("state", flat=True))
    assert states == ["delivered", "pending"]
    assert Worker.objects.get(pid=relay.pid).ended_why == "stopped"
    pool.visiting_relay()
    patiently(lambda: all_delivered(run), hoping_for="the second message delivered")
    assert "effects_repeated" not in run.events()


def test_relay_whose_sessions_are_ended_goes_on(pool: Pool, desk: Desk, receiver: WebReceiver):
    relay = pool.visiting_relay()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'durableops relay%'"
        )
        assert cursor.fetchone()[0] >= 1
    run = posted(desk, receiver, n=2)
    patiently(lambda: all_delivered(run), hoping_for="everything delivered")
    assert relay.process.poll() is None
    assert set(arrivals(receiver).values()) == {1}


def test_message_leaves_soon_after_its_commit(pool: Pool, desk: Desk, receiver: WebReceiver):
    """Well before the relay would have looked by itself."""
    pool.visiting_relay(DURABLEOPS_RELAY_POLL_SECONDS="30")
    run = posted(desk, receiver)
    patiently(lambda: all_delivered(run), timeout=15, hoping_for="both messages delivered")
    first = OutboxMessage.objects.filter(lane__run_id=run.pk).order_by("id")[0]
    assert first.attempted_at is not None
    assert (first.attempted_at - first.created_at).total_seconds() < 5


def test_upkeep_relays_too_and_webhooks_reach_who_subscribed(pool: Pool, desk: Desk, receiver: WebReceiver):
    from durableops.conf import override_conf

    with override_conf(webhook_allow="127.0.0.1/32"):
        endpoints.create(receiver.url, tenant=desk.tenant, actor="tests", event_types=["acc.happened"])
    upkeep = pool.visiting_upkeep(DURABLEOPS_UPKEEP_RELAY_CONCURRENCY="2")
    run = desk.start("acc-announce")
    run.until("succeeded")
    patiently(lambda: all_delivered(run), hoping_for="the event delivered")
    assert receiver.keys == [f"msg_{run.effects()[0].key}"]
    upkeep.send(signal.SIGTERM)
    assert upkeep.ended() == 0

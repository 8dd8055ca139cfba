"""The cleaner as a duty of upkeep: on from the first start, one at a time, and out of the way of live work."""

from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest
from django.db import connection

from durableops.conf import override_conf
from durableops.upkeep.retention import sizes
from durableops.upkeep.retention.thread import Courtesy, RetentionThread
from runs.models import ClassSize, Cleanup, RetentionLane, Run, RunEvent
from tests.factories import make_run, now
from tests.fixtures.engine import holding, terminate
from tests.upkeep.retention.conftest import full_run
from tests.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def thread(transactional_db, media):
    found = RetentionThread()
    yield found
    found.end()
    found._database.close()


# C124
def test_fresh_installation_cleans_by_itself_with_the_defaults(thread):
    full_run()
    with override_conf(retention_seconds=0.01):
        thread.start()
        eventually(lambda: not Run.objects.exists(), hoping_for="the old run to be gone")
        thread.end()
    assert set(Cleanup.objects.values_list("cleaner", "rule")) == {("upkeep", 0)}
    assert RetentionLane.objects.get(name="runs").worked_at is not None


# C124: however many upkeep processes there are, each thing is removed once, by one of them.
def test_ten_of_them_remove_each_thing_once(media):
    for _ in range(10):
        full_run()
    threads = [RetentionThread() for _ in range(10)]
    with override_conf(retention_seconds=0.01):
        for one in threads:
            one.start()
        eventually(lambda: not Run.objects.exists(), hoping_for="the old runs to be gone")
        for one in threads:
            one.end()
    assert sum(Cleanup.objects.filter(kind="runs_run").values_list("rows", flat=True)) == 10


def test_cleaner_whose_server_restarts_in_the_middle_of_it_goes_on_and_removes_each_thing_once(
    thread, second, monkeypatch
):
    monkeypatch.setattr("durableops.upkeep.retention.thread.PATIENCE_SECONDS", 0.01)
    for _ in range(3):
        full_run()
    event = RunEvent.objects.order_by("id")[0]
    # Its step waits for a row when its session ends: what it had removed by then is there again.
    with override_conf(retention_seconds=0.01):
        with holding(second, "SELECT 1 FROM runs_event WHERE id = %s FOR UPDATE", [event.pk]):
            thread.start()
            eventually(lambda: _waits_for_a_lock(), hoping_for="the cleaner in the middle of a step")
            assert terminate("durableops retention") == 1
        eventually(lambda: not Run.objects.exists(), hoping_for="the old runs to be gone")
        thread.end()
    assert sum(Cleanup.objects.filter(kind="runs_run").values_list("rows", flat=True)) == 3
    assert sum(Cleanup.objects.filter(kind="runs_artifact").values_list("rows", flat=True)) == 3 * 5


def _waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'durableops retention' AND wait_event_type = 'Lock')"
        )
        return bool(cursor.fetchone()[0])


def test_round_measures_sizes_once_an_hour(thread):
    full_run(ago=timedelta(minutes=1))
    thread.make_one()
    thread.make_one()
    assert ClassSize.objects.filter(data_class="event").count() == 1
    RetentionLane.objects.filter(name="sizes").update(worked_at=now() - timedelta(hours=2))
    thread.make_one()
    assert ClassSize.objects.filter(data_class="event").count() == 2


def test_sizes_are_those_of_what_there_is(cleaning):
    for _ in range(3):
        full_run(ago=timedelta(minutes=1))
    with cleaning.cursor() as cursor:
        # All of them: what autovacuum noted of another test's rows outlives those rows.
        cursor.execute(f"ANALYZE {', '.join(sizes.TABLES)}")
    found = sizes.measure(cleaning)
    assert (found["temp_file"].rows, found["temp_file"].bytes) == (3, 21)
    assert (found["decision"].rows, found["checkpoint"].rows, found["input"].rows) == (3, 6, 9)
    assert all(found[name].bytes > 0 for name in ("event", "checkpoint", "effect_key", "effect_body", "raw_prompt"))


def test_rows_of_a_table_that_was_never_analyzed_are_counted_as_they_came(cleaning, database_url):
    with psycopg.connect(database_url) as owner:
        owner.execute("TRUNCATE runs_prompt")  # the server forgets what it had analyzed
    for _ in range(3):
        full_run(ago=timedelta(minutes=1))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    assert sizes.measure(cleaning)["raw_prompt"].rows == 3 + 3, "the prompts, and the files of that class"


def test_it_pauses_longer_while_runs_wait(cleaning, monkeypatch):
    pauses = []

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return False

    ticks = iter(range(100))
    monkeypatch.setattr("durableops.upkeep.retention.thread.monotonic", lambda: float(next(ticks)))
    with override_conf(retention_share=0.5):
        way = Courtesy(cleaning, Over())
        assert way()
        make_run(due_at=now() - timedelta(seconds=5))
        assert way()
    assert pauses == [1.0, 4.0]


def test_it_leaves_when_the_process_ends(cleaning):
    over = threading.Event()
    over.set()
    assert not Courtesy(cleaning, over)()

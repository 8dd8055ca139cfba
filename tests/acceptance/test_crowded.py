"""One worker process with many runs in hand: its death, stuck steps, connections, and runs that want to be alone."""

from __future__ import annotations

import importlib
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import connection

from durableops.authoring import registry
from durableops.authoring.definitions import ToolDefinition, WorkflowDefinition
from runs.models import IdempotencyRecord, Run, RunEvent, Worker
from tests.acceptance.memory import NoControlGroup, limited_to
from tests.acceptance.pool import Desk, Pool, Told
from tests.acceptance.processes import backends, patiently
from tests.waiting import eventually

LIMIT_MEGABYTES = 400

pytestmark = [pytest.mark.engine, pytest.mark.drill, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def definitions() -> Iterator[None]:
    with registry.isolated() as known:
        module = importlib.import_module("tests.acceptance.crowded.workflows")
        for found in vars(module).values():
            if isinstance(found, ToolDefinition):
                known.add_tool(found)
            elif isinstance(found, WorkflowDefinition):
                known.add_workflow(found)
        yield


@pytest.fixture(scope="module")
def pool(broker: redis.Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """One upkeep, and one worker with sixteen places that has another one beside it for isolated runs."""
    folder = tmp_path_factory.mktemp("pool")
    found = Pool(folder, DURABLEOPS_APPS="tests.acceptance.crowded", DURABLEOPS_CONCURRENCY="16")
    try:
        found.worker.ready()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def company() -> None:
    """None from elsewhere: these runs are company to each other."""


def gather(desk: Desk, workflow: str, count: int, **given: Any) -> list[Told]:
    """So many runs under one gate, each in its step."""
    runs = [desk.start(workflow, shared=True, **given) for _ in range(count)]
    runs[0].until_marked("", "began", times=count)
    return runs


def test_death_of_a_process_interrupts_all_its_runs_and_repeats_nothing_it_had_committed(pool: Pool, desk: Desk):
    runs = gather(desk, "crowd-mixed", 16)
    assert {run.row.worker_id for run in runs} == {pool.worker.ready().pk}
    assert len({mark["pid"] for mark in runs[0].marks("second", "began")}) == 1
    pool.worker.kill_child()
    runs[0].until_marked("second", "began", times=32)
    runs[0].open_gate()
    for run in runs:
        run.until("succeeded")

    assert all(run.causes() == ["worker_lost"] for run in runs)
    world = [line["key"] for line in runs[0].world()]
    assert len(world) == len(set(world)) == 3 * len(runs)
    assert all(run.steps()[-1][0] == 3 for run in runs)
    assert not IdempotencyRecord.objects.filter(run__in=[run.pk for run in runs], attempts__gt=1).exists()


@pytest.mark.parametrize("how", ["sleeps", "native", "locks"])
def test_stuck_step_is_taken_away_and_its_neighbours_are_none_the_worse(pool: Pool, desk: Desk, how: str):
    neighbours = gather(desk, "crowd-plain", 3) + gather(desk, "crowd-mixed", 3)
    first = pool.worker.ready()
    stuck = desk.start("crowd-stuck", what=how)
    stuck.until("succeeded", timeout=60)
    assert stuck.row.step_attempts == 0
    events = stuck.events()
    assert events[:4] == ["start", "claim", "step_timeout", "kill_step"]
    ended = eventually(
        lambda: Worker.objects.filter(pk=first.pk, ended_at__isnull=False).first(), hoping_for="the end of the process"
    )
    assert ended is not None
    assert ended.ended_why.startswith("stopped: step 'hold_on' of run")
    assert str(stuck.pk) in ended.ended_why
    assert ended.forced_stops == 1

    neighbours[0].open_gate()
    for run in neighbours:
        row = run.until("succeeded", timeout=40)
        assert row.recoveries == 0
        assert set(run.causes()) == {"worker_stopped"}
    assert "did not stop at its timeout" in pool.worker.words()


def test_step_that_eats_all_memory_takes_down_its_own_process_only_and_is_named(pool: Pool, desk: Desk):
    far = gather(desk, "crowd-mixed", 4)
    elsewhere = pool.worker.ready()
    os.kill(elsewhere.child_pid, signal.SIGSTOP)
    try:
        with limited_to(LIMIT_MEGABYTES) as within:
            visitor = pool.visitor(within=within)
            near = [desk.start(kind, shared=True) for kind in ("crowd-mixed", "crowd-plain") for _ in range(3)]
            far[0].until_marked("", "began", times=len(far + near))
            hungry = desk.start("crowd-hungry")
            eaten = visitor.ready()
            assert {run.row.worker_id for run in near} == {eaten.pk}
            patiently(lambda: Worker.objects.get(pk=eaten.pk).ended_at, hoping_for="the end of the process that ate")
            visitor.close()
    except NoControlGroup as why:
        pytest.skip(f"NO LIMIT ON MEMORY CAN BE SET HERE: {why}")
    finally:
        os.kill(elsewhere.child_pid, signal.SIGCONT)
    assert Worker.objects.get(pk=eaten.pk).ended_why == "its process was killed by SIGKILL"
    [named] = [line for line in visitor.words().splitlines() if "it held" in line]
    held = re.search(r"killed by SIGKILL; it held (\d+) MB and was in (\d+) steps: (.*)", named)
    assert held is not None, named
    assert 100 < int(held[1]) < LIMIT_MEGABYTES
    assert int(held[2]) == len(near) + 1
    assert f"'eat' of run {hungry.pk}" in held[3]

    far[0].open_gate()
    assert hungry.until("succeeded").recoveries == 0
    for run in [*near, hungry]:
        run.until("succeeded")
        assert "worker_lost" in run.causes()
    # Those of the other process lose nothing; one may have made place for those of the lost one.
    for run in far:
        run.until("succeeded")
        assert set(run.causes()) <= {"slice"}
    assert Worker.objects.get(pk=elsewhere.pk).ended_at is None
    sent = [line["key"] for line in far[0].world()]
    assert len(sent) == len(set(sent)) == 3 * 7


def test_step_that_blocks_the_loop_is_named_on_its_run(pool: Pool, desk: Desk):
    run = desk.start("crowd-blocks")
    run.until("succeeded")
    blocked = run.event("loop_blocked")
    assert blocked.step_id == "block"
    assert "workflows.py" in blocked.data["where"]
    assert "blocked the event loop" in pool.worker.words()


def test_steps_hold_no_connection_while_they_wait_and_a_process_opens_few(pool: Pool, desk: Desk):
    pool.worker.kill_child()
    pool.worker.ready()
    runs = [desk.start("crowd-asks", shared=True) for _ in range(16)]
    runs[0].until_marked("ask", "asked", times=16)
    eventually(lambda: Run.objects.filter(pk__in=[r.pk for r in runs], state="running").count() == 16)
    assert 1 <= len(backends("durableops worker")) <= 4
    assert len(backends("durableops attendant")) == 1
    assert 1 <= len(django_sessions()) <= 4
    assert all(state == "idle" for state in django_sessions())

    told = eventually(
        lambda: Worker.objects.filter(pk=pool.worker.ready().pk, in_hand=16, memory_bytes__gt=2**20).first(),
        hoping_for="a worker that says what it holds",
    )
    assert told is not None
    assert told.concurrency == 16
    assert 3 <= told.connections <= 10
    runs[0].open_gate()
    for run in runs:
        run.until("succeeded")


def django_sessions() -> list[str]:
    """States of the sessions that step code of workers has open."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND application_name NOT LIKE 'durableops %%' AND backend_type = 'client backend'"
            " AND query LIKE '%%runs_tenant%%'"
        )
        return [row[0] for row in cursor.fetchall()]


def test_isolated_step_runs_in_a_process_of_its_own_and_takes_nobody_down(pool: Pool, desk: Desk):
    neighbours = gather(desk, "crowd-mixed", 4)
    alone = desk.start("crowd-alone", fails=True)
    alone.until("succeeded", timeout=60)
    where = {mark["step"]: mark["pid"] for mark in alone.marks()}
    assert where["before"] == where["after"] == neighbours[0].marks("second")[0]["pid"]
    assert len({mark["pid"] for mark in alone.marks("compute")} | {where["before"]}) == 3
    assert alone.causes() == ["isolation", "worker_lost", "isolation"]

    neighbours[0].open_gate()
    for run in neighbours:
        run.until("succeeded")
        assert run.causes() == []
    lost = RunEvent.objects.get(run_id=alone.pk, event="lose_worker")
    assert Worker.objects.filter(isolated=True, pk__in=[lost.worker_id]).exists()


def test_isolated_runs_wait_for_each_other_and_for_nobody_else(pool: Pool, desk: Desk):
    first = desk.start("crowd-alone", what="gate")
    first.until_marked("compute", "began")
    second = desk.start("crowd-alone")
    other = desk.start("crowd-mixed")
    other.open_gate()
    other.until("succeeded")
    assert second.until("queued").isolated is True
    first.open_gate()
    for run in (first, second):
        run.until("succeeded")

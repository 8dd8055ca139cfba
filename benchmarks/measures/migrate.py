"""`migrate`: many waiting runs are migrated as one bulk action that is killed half-way, beside live work."""

from __future__ import annotations

import time
from itertools import pairwise
from uuid import UUID

import psycopg

from benchmarks.copies import copy
from benchmarks.draining import begin
from benchmarks.fleet import Fleet, fleet
from benchmarks.marks import Marks
from benchmarks.results import Figure, Result, at_most, quantile
from benchmarks.scratch import Place
from benchmarks.workflows import STOP
from durableops.engine import commands, reviewing
from durableops.engine.bulk import capture, control
from durableops.engine.bulk.verbs import verb
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from runs.models import Bulk, Run

MOVING, LIVE = "bench-moving", "bench-pages"
ACTOR, REASON = "bench", "a benchmark"
WANTED_SECONDS, WANTED_RUNS = 300.0, 10_000
CHANGED_SHARE = 0.01
WATCHED_SECONDS = 3.0
PATIENCE_SECONDS = 900.0
_SETTLED = "SELECT count(*) FROM runs_bulk_item WHERE bulk_id = %s AND state <> 'pending'"
_OUTCOMES = "SELECT state, count(*) FROM runs_bulk_item WHERE bulk_id = %s GROUP BY state"
_TWICE = """
SELECT count(*) FROM (SELECT run_id FROM runs_lineage WHERE kind = 'migrate' GROUP BY run_id HAVING count(*) > 1) x"""
_LISTED = "SELECT count(*) FROM runs_bulk_item WHERE bulk_id = %s AND run_id = ANY(%s) AND state = 'refused'"
_MOVED = """
SELECT count(*) FROM runs_run r JOIN runs_workflow_plan p ON p.id = r.plan_id
WHERE r.workflow = 'bench-moving' AND p.version = 2 AND r.step_id = 'ingest' AND r.lineage = 2"""


def measure(place: Place, *, runs: int = WANTED_RUNS, watched_seconds: float = WATCHED_SECONDS) -> Result:
    """Let so many runs wait under the old version, change a few, migrate all; kill upkeep when half are done."""
    began = time.monotonic()
    with psycopg.connect(place.owner_url, autocommit=True) as connection, fleet(place) as processes:
        marks = Marks(place.marks_path)
        ids = _waiting(processes, connection, runs)
        begin(LIVE, "live")
        marks.wait(lambda found: len(found) > 20, seconds=PATIENCE_SECONDS)
        marks.new()
        time.sleep(watched_seconds)
        alone = _gaps(marks)
        tenant = get_or_make_tenant("bench")
        arguments = {"workflow": MOVING, "version": 2}
        shown = time.monotonic()
        bulk = capture.preview(
            verb(reviewing.MIGRATE), capture.Selection(words="all of them", ids=ids), tenant=tenant, actor=ACTOR,
            arguments=arguments,
        )  # fmt: skip
        shown = time.monotonic() - shown
        upkeep = processes.start_upkeep()
        since = time.monotonic()
        control.start(bulk.pk, tenant=tenant, actor=ACTOR, reason=REASON)
        changed = ids[: max(1, round(runs * CHANGED_SHARE))]
        for run_id in changed:
            commands.cancel(run_id, tenant=tenant, actor=ACTOR, reason=REASON, done="keep")
        _await(connection, bulk, runs // 2)
        processes.kill(upkeep)
        half = int(_one(connection, _SETTLED, [bulk.pk]))
        processes.start_upkeep()
        _await(connection, bulk, runs)
        seconds = time.monotonic() - since
        beside = _gaps(marks)
        (place.folder / STOP).touch()
        outcomes: dict[str, int] = dict(connection.execute(_OUTCOMES, [bulk.pk]).fetchall())
        moved, twice = int(_one(connection, _MOVED)), int(_one(connection, _TWICE))
        listed = int(_one(connection, _LISTED, [bulk.pk, changed]))
    done = outcomes.get("done", 0)
    figures = {
        "runs": Figure(value=runs, unit="runs", note=f"{half:,} were settled when upkeep was killed"),
        "seconds": Figure(value=round(seconds, 1), unit="s", note="from the start, with the kill and a new upkeep"),
        "seconds_for_10000": Figure(value=round(seconds / runs * WANTED_RUNS, 1), unit="s"),
        "preview_seconds": Figure(value=round(shown, 2), unit="s"),
        "migrated": Figure(value=done, unit="runs"),
        "migrated_without_a_trace": Figure(value=moved - done, unit="runs", note="migrated, and not said so"),
        "migrated_twice": Figure(value=twice, unit="runs"),
        "refused": Figure(
            value=outcomes.get("refused", 0), unit="runs", note=f"{len(changed)} were cancelled meanwhile"
        ),
        "changed_and_listed": Figure(value=listed, unit="runs", note="the others had their turn before they changed"),
        "failed": Figure(value=outcomes.get("failed", 0), unit="runs"),
        "commit_p95_alone": Figure(value=_p95(alone), unit="ms", note=f"of {len(alone):,} commits"),
        "commit_p95_beside": Figure(value=_p95(beside), unit="ms", note=f"of {len(beside):,} commits"),
    }
    targets = [
        at_most("seconds to migrate 10,000 runs beside live work", WANTED_SECONDS, figures["seconds_for_10000"]),
        at_most("runs migrated twice", 0, figures["migrated_twice"]),
        at_most("runs migrated and not said so", 0, figures["migrated_without_a_trace"]),
        at_most("runs failed", 0, figures["failed"]),
    ]
    return Result(bench="migrate", seconds=time.monotonic() - began, figures=figures, targets=targets)


def _waiting(processes: Fleet, connection: psycopg.Connection, runs: int) -> list[UUID]:
    """One run that a worker brought to its wait, and as many copies of it. The worker stays for the live work."""
    tenant = get_or_make_tenant("bench")
    first = start(MOVING, {"key": "first"}, tenant=tenant, actor=ACTOR, version=1).run_id
    processes.start_worker()
    end = time.monotonic() + PATIENCE_SECONDS
    while not Run.objects.filter(pk=first, state="waiting").exists():
        if time.monotonic() > end:
            raise TimeoutError("the first run did not come to its wait")
        time.sleep(0.05)
    found = [first, *copy(connection, first, runs - 1)]
    connection.execute("ANALYZE")
    return found


def _await(connection: psycopg.Connection, bulk: Bulk, settled: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while int(_one(connection, _SETTLED, [bulk.pk])) < settled:
        if time.monotonic() > end:
            raise TimeoutError(f"the bulk action did not come to {settled} of its runs")
        time.sleep(0.05)


def _gaps(marks: Marks) -> list[float]:
    """Milliseconds from each commit of the live work to the next."""
    return [(later.at - earlier.at) * 1000 for earlier, later in pairwise(marks.new())]


def _p95(milliseconds: list[float]) -> float | None:
    return round(quantile(milliseconds, 0.95), 3) if milliseconds else None


def _one(connection: psycopg.Connection, query: str, params: list[object] | None = None) -> int:
    row = connection.execute(query.encode(), params).fetchone()
    assert row is not None
    return int(row[0])

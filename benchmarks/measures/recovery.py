"""`recovery`: real workers are killed at random moments; how long until the next step of their run starts elsewhere."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import psycopg

from benchmarks.fleet import Fleet, fleet
from benchmarks.marks import Mark, Marks
from benchmarks.results import Figure, Result, at_most, spread
from benchmarks.scratch import Place
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant

POOL = 3
IN_HAND = 2
"""Runs under way at any time: fewer than workers, so that one is free, as in a pool that is not overloaded."""
PATIENCE_SECONDS = 60.0
_HELD = """
SELECT r.id, w.pid, w.child_pid FROM runs_run r JOIN runs_worker w ON w.id = r.worker_id
WHERE r.state = 'running' AND w.ended_at IS NULL"""
_LIVING = "SELECT count(*) FROM runs_worker WHERE ended_at IS NULL"


@dataclass(frozen=True, kw_only=True)
class Held:
    """A run in the hand of a worker."""

    run_id: UUID
    parent: int
    child: int


def measure(
    place: Place, *, kills: int = 30, near_kills: int = 10, child_kills: int = 10, pool_kills: int = 5, seed: int = 0
) -> Result:
    """Kill one worker on another machine than upkeep's `kills` times, one on the same machine `near_kills` times.

    Then only a worker's child `child_kills` times, which its parent sees, and the whole pool `pool_kills` times.
    """
    began = time.monotonic()
    with psycopg.connect(place.owner_url, autocommit=True) as connection, fleet(place) as processes:
        scene = _Scene(place, connection, processes, random.Random(seed))  # noqa: S311 - moments, not secrets
        scene.set_up()
        far = scene.repeat(scene.kill_far_worker, kills)
        near = scene.repeat(scene.kill_worker, near_kills)
        children = scene.repeat(scene.kill_child, child_kills)
        pools = scene.repeat(scene.kill_pool, pool_kills)
    figures = {
        "kills": Figure(value=kills + near_kills + child_kills + pool_kills, unit="kills"),
        **{f"worker_{name}": figure for name, figure in spread(far, unit="s").items()},
        **{f"near_worker_{name}": figure for name, figure in spread(near, unit="s").items()},
        **{f"child_{name}": figure for name, figure in spread(children, unit="s").items()},
        **{f"pool_{name}": figure for name, figure in spread(pools, unit="s").items()},
    }
    targets = [
        at_most("SIGKILL of one worker of a pool to the next step, p95", 1.0, figures["worker_p95"]),
        at_most("whole pool killed, from the new processes' start to the next step, max", 2.0, figures["pool_max"]),
    ]
    return Result(bench="recovery", seconds=time.monotonic() - began, figures=figures, targets=targets)


class _Scene:
    """A pool under steady work, and what is done to it."""

    def __init__(self, place: Place, connection: psycopg.Connection, processes: Fleet, dice: random.Random) -> None:
        self._connection = connection
        self._processes = processes
        self._dice = dice
        self._marks = Marks(place.marks_path)
        self._started = 0

    def set_up(self) -> None:
        """Start the pool and wait until all of it is there."""
        for _ in range(POOL):
            self._processes.start_worker()
        self._processes.start_upkeep()
        self._settle()

    def repeat(self, kill: Callable[[], float | None], times: int) -> list[float]:
        """Kill until it has hit that often: a run that finished just before has nothing to recover."""
        seen: list[float] = []
        while len(seen) < times:
            seconds = kill()
            self._settle()
            seen += [] if seconds is None else [seconds]
        return seen

    def kill_far_worker(self) -> float | None:
        """As `kill_worker`, of a pool that upkeep must judge from another machine: by its counter and its session."""
        self._connection.execute("UPDATE runs_worker SET machine = 'another' WHERE ended_at IS NULL")
        return self.kill_worker()

    def kill_worker(self) -> float | None:
        """SIGKILL a whole worker that holds a run; seconds until the run's next step starts. It is replaced."""
        held = self._at_a_random_moment()
        process = next(one for one in self._processes.workers if one.pid == held.parent)
        since = self._processes.kill(process)
        self._processes.start_worker()
        return self._until_next_step([held], since=since)

    def kill_child(self) -> float | None:
        """SIGKILL only the process that runs the step; its parent sees it at once."""
        held = self._at_a_random_moment()
        since = self._processes.kill_child_of(held.parent, held.child)
        return self._until_next_step([held], since=since)

    def kill_pool(self) -> float | None:
        """SIGKILL everything at once and start it again; seconds from the start of the new processes."""
        one = self._at_a_random_moment()
        held = self._held() or [one]
        self._processes.kill_all()
        since = time.time()
        self._processes.start_upkeep()
        for _ in range(POOL):
            self._processes.start_worker()
        return self._until_next_step(held, since=since)

    def _settle(self) -> None:
        """Wait until every worker of the pool is registered, with runs under way."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            row = self._connection.execute(_LIVING).fetchone()
            if row is not None and row[0] >= POOL:
                return
            time.sleep(0.05)
        raise RuntimeError(f"the pool was not there within {PATIENCE_SECONDS:g} s")

    def _at_a_random_moment(self) -> Held:
        """Keep runs under way for a random time, then name one that a worker holds right now."""
        end = time.monotonic() + self._dice.uniform(0.3, 0.8)
        give_up = end + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            held = self._held()
            for _ in range(IN_HAND - self._open()):
                self._start()
            if time.monotonic() > end and held:
                return self._dice.choice(held)
            time.sleep(0.01)
        raise RuntimeError("no worker took a run")

    def _held(self) -> list[Held]:
        rows = self._connection.execute(_HELD).fetchall()
        known = {process.pid for process in self._processes.workers}
        return [Held(run_id=row[0], parent=row[1], child=row[2]) for row in rows if row[1] in known]

    def _open(self) -> int:
        row = self._connection.execute("SELECT count(*) FROM runs_run WHERE finished_at IS NULL").fetchone()
        return int(row[0]) if row else 0

    def _start(self) -> None:
        self._started += 1
        start("bench-steady", {"key": f"run-{self._started}"}, tenant=get_or_make_tenant("bench"), actor="bench")

    def _until_next_step(self, held: list[Held], *, since: float) -> float | None:
        """Seconds from `since` until a step of one of those runs was entered by another process.

        None if all of them had finished before the kill.
        """
        rows = self._connection.execute(
            "SELECT s.state::jsonb ->> 'key' FROM runs_checkpoint s WHERE s.seq = 0 AND s.run_id = ANY(%s)",
            [[one.run_id for one in held]],
        ).fetchall()
        keys, dead = {row[0] for row in rows}, {one.child for one in held}

        def next_steps(found: list[Mark]) -> list[Mark]:
            return [mark for mark in found if mark.key in keys and mark.at > since and mark.pid not in dead]

        def enough(found: list[Mark]) -> bool:
            return bool(next_steps(found)) or self._all_finished(held)

        seen = next_steps(self._marks.wait(enough, seconds=PATIENCE_SECONDS))
        if seen:
            return min(mark.at for mark in seen) - since
        if self._all_finished(held):
            return None
        raise RuntimeError(f"no step of {', '.join(sorted(keys))} started again within {PATIENCE_SECONDS:g} s")

    def _all_finished(self, held: list[Held]) -> bool:
        row = self._connection.execute(
            "SELECT bool_and(finished_at IS NOT NULL) FROM runs_run WHERE id = ANY(%s)", [[one.run_id for one in held]]
        ).fetchone()
        return bool(row and row[0])

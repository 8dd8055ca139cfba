"""After the cleaning: what was kept goes on in a real worker, what had ended stays ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from durableops.engine import commands
from durableops.errors import TransitionRefused
from durableops.upkeep.drills.company import ACTOR
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import comes_true
from examples.keeping.cells import DAYS, MAY_BE_REOPENED, NOTHING
from examples.keeping.making import Maker
from examples.keeping.people import WHY
from runs.models import Run
from runs.states import TERMINAL

GO_ON_WITHIN_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1
REOPENED = 3


def go_on(stage: Stage, maker: Maker) -> int:
    """Let them, and check it. Returns how many runs that had ended were run again."""
    ended = _positions(maker)
    reopened = _reopen(stage, maker)
    waiting = [
        run for run, cell in maker.cells.items() if cell.state in ("queued", "running") and cell.held_by == NOTHING
    ]
    stage.start_upkeep()
    worker = stage.start_worker(1)
    stage.await_upkeep()
    stage.await_workers([worker])
    wanted = [*waiting, *reopened]
    comes_true(
        lambda: Run.objects.filter(pk__in=wanted, state="succeeded").count() == len(wanted),
        within=GO_ON_WITHIN_SECONDS,
        every=LOOK_EVERY_SECONDS,
    )
    done = Run.objects.filter(pk__in=wanted, state="succeeded").count()
    stage.checks.equal("what_was_kept_goes_on", done, len(wanted), "open and reopened runs that came to their end")
    now = _positions(maker)
    again = [run for run, position in ended.items() if run not in reopened and now.get(run, position) != position]
    again += [run for run in now.keys() - ended.keys() if maker.cells[run].state in TERMINAL]
    told = f"{len(again)} of {len(ended)}, with a worker and upkeep beside them"
    stage.checks.add("completed_runs_run_again", not again, f"{told}: {', '.join(map(str, again[:5]))}")
    return len(again)


def _positions(maker: Maker) -> dict[UUID, tuple[Any, ...]]:
    """State, fence, end and position of each run that had ended."""
    ids = [run for run, cell in maker.cells.items() if not cell.is_open]
    rows = Run.objects.filter(pk__in=ids).values_list("pk", "state", "fence", "finished_at", "head_seq")
    return {row[0]: row[1:] for row in rows}


def _reopen(stage: Stage, maker: Maker) -> list[UUID]:
    """Reopen some of those that may be; those of which something has gone must be refused."""
    done = []
    for run in islice(_may_be_reopened(maker), REOPENED):
        commands.retry(run, tenant=maker.tenant, actor=ACTOR, reason=WHY)
        done.append(run)
    refused = 0
    cleaned = list(islice(_cleaned(maker), REOPENED))
    for run in cleaned:
        try:
            commands.retry(run, tenant=maker.tenant, actor=ACTOR, reason=WHY)
        except TransitionRefused:
            refused += 1
    stage.checks.equal("cleaned_run_is_not_reopened", refused, len(cleaned), "attempts that were refused")
    return done


def _may_be_reopened(maker: Maker) -> Iterator[UUID]:
    """The oldest first: everything that is not needed for it has gone."""
    old = sorted(maker.cells.items(), key=lambda one: -one[1].hours)
    return (run for run, cell in old if cell.held_by == "may be reopened" and cell.state in MAY_BE_REOPENED)


def _cleaned(maker: Maker) -> Iterator[UUID]:
    """Those that are still on record and of which the checkpoints have gone."""
    for run, cell in maker.cells.items():
        is_between = DAYS["checkpoint"] * 24 < cell.hours < DAYS["effect_key"] * 24
        if is_between and cell.held_by == NOTHING and cell.state in MAY_BE_REOPENED:
            yield run

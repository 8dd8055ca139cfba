"""The cleaner as a process of its own, killed at every point it has, and in the middle of a statement."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from durableops.engine.database import Database
from durableops.failpoints import Point
from durableops.upkeep.drills.checks import DrillStopped
from durableops.upkeep.drills.stage import Stage
from durableops.upkeep.drills.waiting import until
from runs.models import Decision

BETWEEN = (Point.BEFORE_CLEANING, Point.AFTER_CLEANING)
AT_FILES = (Point.BEFORE_FILE_REMOVED, Point.AFTER_FILE_REMOVED)
DONE_WITHIN_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.02
_WAITS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'durableops retention command' AND wait_event_type = 'Lock'"""
_THERE = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'durableops retention command'"""


@dataclass(frozen=True)
class Scene:
    """One death: at which passing of which point, or (without one) in the middle of a statement."""

    point: Point | None
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.point}@{self.nth}" if self.point else "in a statement"


def scenes(stage: Stage) -> list[Scene]:
    """Every point once, those of the files last: they are passed when all the rows have gone."""
    if stage.short:
        return [
            Scene(None), Scene(Point.BEFORE_CLEANING, 2), Scene(Point.AFTER_CLEANING),
            Scene(Point.BEFORE_FILE_REMOVED, 2), Scene(Point.AFTER_FILE_REMOVED, 3),
        ]  # fmt: skip
    between = [Scene(point, nth) for point in BETWEEN for nth in (1, stage.random.randint(2, 4))]
    files = [Scene(point, nth) for point in AT_FILES for nth in (1, stage.random.randint(2, 40))]
    return [*between[:2], Scene(None), *between[2:], Scene(None), *files]


class Cleaners:
    """Cleaners, one after the other, each a process of its own."""

    def __init__(self, stage: Stage, looking: Database) -> None:
        self._looking = looking
        """A connection of our own, to see what theirs are doing."""
        self._nursery = stage.cast.start("cleaners", [sys.executable, "-m", "examples.keeping.nursery"], answers=True)
        self.struck: list[str] = []
        """Where one died as it was told to."""
        self.missed: list[str] = []
        """Where one did not."""

    def die(self, scene: Scene, *, among: Collection[UUID]) -> str:
        """Let one begin and die as the scene says; `among`: runs whose decisions go. Returns it in words."""
        where = str(scene)
        if scene.point is None:
            status = self._kill_in_a_statement(among)
        else:
            self._begin(f"{scene.point}=kill@{scene.nth}")
            status, _ = self._end()
        (self.struck if status == -signal.SIGKILL else self.missed).append(where)
        return f"killed {where}"

    def clean(self) -> dict[str, Any]:
        """Let one do its work to the end. Returns what it says. Raises DrillStopped when it fails."""
        self._begin("")
        status, told = self._end()
        if status or told is None:
            raise DrillStopped(f"a cleaner ended with status {status}; see the log of the cleaners.")
        return told

    def _kill_in_a_statement(self, among: Collection[UUID]) -> int:
        """Kill one whose statement waits for a row of the run that comes first; what it began ends without it."""
        with transaction.atomic():
            first = Decision.objects.filter(run__in=list(among)).order_by("run__finished_at", "run_id", "id")[:1]
            if not Decision.objects.select_for_update().filter(pk__in=[one.pk for one in first]):
                raise DrillStopped("no decision is left that a cleaner would have to wait for.")
            process = self._begin("")
            until(
                lambda: self._count(_WAITS), wanted="a statement of the cleaner's that waits",
                within=DONE_WITHIN_SECONDS, every=LOOK_EVERY_SECONDS, meanwhile=partial(_is_there, process),
            )  # fmt: skip
            os.kill(process, signal.SIGKILL)
            status, _ = self._end()
        until(
            lambda: not self._count(_THERE), wanted="the end of what it had begun", within=DONE_WITHIN_SECONDS,
            every=LOOK_EVERY_SECONDS,
        )  # fmt: skip
        return status

    def _begin(self, points: str) -> int:
        stdin = self._nursery.process.stdin
        assert stdin is not None
        stdin.write(f"{points}\n")
        stdin.flush()
        return int(self._line()["process"])

    def _end(self) -> tuple[int, dict[str, Any] | None]:
        told = None
        while "status" not in (said := self._line()):
            told = said
        return int(said["status"]), told

    def _line(self) -> dict[str, Any]:
        line = self._nursery.line(within=DONE_WITHIN_SECONDS)
        if not line:
            raise DrillStopped(f"the cleaners said nothing within {DONE_WITHIN_SECONDS:g} s; see their log.")
        found: dict[str, Any] = json.loads(line)
        return found

    def _count(self, query: str) -> int:
        return int(self._looking.fetch(query)[0][0])


def _is_there(process: int) -> None:
    """Raises DrillStopped when the cleaner has come to its end."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        raise DrillStopped("the cleaner came to its end and waited for nothing.") from None

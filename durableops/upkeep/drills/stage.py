"""What a drill is given: its processes, its seed, its list of checks, and workers with short clocks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

from django.conf import settings
from django.db import connection

from durableops.upkeep.drills.checks import Checks
from durableops.upkeep.drills.processes import Cast, Member
from durableops.upkeep.drills.waiting import until
from runs.models import Worker

SHORT_CLOCKS = {"DURABLEOPS_LEASE_SECONDS": "2", "DURABLEOPS_GRACE_SECONDS": "2", "DURABLEOPS_POLL_SECONDS": "1"}
"""A drill waits for leases to run out; what it proves does not depend on their length."""
NEVER = "never"
"""Name of a file that is never made: what a failpoint holds until then is held until it is killed."""
STARTS_WITHIN_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.05
_UPKEEP_IS_THERE = """
SELECT EXISTS (SELECT 1 FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'durableops upkeep')"""


@dataclass(kw_only=True)
class Stage:
    """One playing of one drill."""

    seed: int
    random: Random
    short: bool
    """Whether the least that proves it will do, as in the test suite."""
    folder: Path
    """Logs, and whatever else its processes write."""
    cast: Cast
    checks: Checks

    def arm(self, points: str) -> None:
        """Arm failpoints in every process that is started from now on."""
        self.cast.environment["DURABLEOPS_FAILPOINTS"] = points

    def start_upkeep(self) -> Member:
        """Start the process that notices and wakes."""
        return self.cast.manage("upkeep", "upkeep")

    def start_worker(self, number: int) -> Member:
        """Start one worker."""
        return self.cast.manage(f"worker-{number}", "worker")

    def await_upkeep(self) -> None:
        """Wait until upkeep makes its rounds."""
        until(_upkeep_is_there, wanted="upkeep at work", within=STARTS_WITHIN_SECONDS, every=LOOK_EVERY_SECONDS)

    def await_workers(self, members: list[Member]) -> None:
        """Wait until these workers hold a lease."""
        pids = {member.pid for member in members}
        until(
            lambda: pids <= set(Worker.objects.filter(ended_at=None).values_list("pid", flat=True)),
            wanted=f"a lease of each of {len(pids)} workers",
            within=STARTS_WITHIN_SECONDS,
            every=LOOK_EVERY_SECONDS,
        )


def make_stage(*, seed: int, folder: Path, short: bool = False) -> Stage:
    """An empty stage whose processes see this process's environment, with short clocks."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    environment = {
        **os.environ,
        **SHORT_CLOCKS,
        "DURABLEOPS_FAILPOINT_RELEASE": str(folder / NEVER),
        "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
    }
    return Stage(
        seed=seed,
        random=Random(seed),  # noqa: S311 - a drill that can be played again, not a secret
        short=short,
        folder=folder,
        cast=Cast(folder=Path(settings.BASE_DIR), logs=logs, environment=environment),
        checks=Checks(),
    )


def _upkeep_is_there() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_UPKEEP_IS_THERE)
        return bool(cursor.fetchone()[0])

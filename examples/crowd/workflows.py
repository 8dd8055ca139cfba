"""A workflow that takes a nap; of some runs it first waits for an event that comes for all of them at once."""

from __future__ import annotations

import time
from datetime import timedelta

from durableops import Run, State, step, workflow

NAME = "napping"
STORM = "storm"
_HOUR = timedelta(hours=1)


class Nap(State):
    """What one run does."""

    seconds: float
    waits: bool = False


@workflow(name=NAME, version=1, state=Nap, deadline=_HOUR, max_recoveries=20)
class Napping:
    """Wait if it has to, then sleep."""

    @step(timeout=60)
    def nap(run: Run) -> None:
        if run.state.waits:
            run.wait_for(STORM, timeout=_HOUR)
        time.sleep(run.state.seconds)

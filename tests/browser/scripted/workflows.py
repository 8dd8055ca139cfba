"""A run with something to see: a step that holds until a file is there, then an approval."""

from __future__ import annotations

import time
from pathlib import Path

from durableops import Run, State, step, workflow


class Watched(State):
    gate: str
    """The file that lets the second step go."""


@workflow(name="watched", version=1, state=Watched)
class WatchedWorkflow:
    @step
    def prepare(run: Run) -> None:
        run.log("prepared")

    @step(timeout=120)
    def hold(run: Run) -> None:
        while not Path(run.state.gate).exists():
            time.sleep(0.02)

    @step
    def deliver(run: Run) -> None:
        run.approval("delivery", question="Deliver it?", facts={"rows": 3})

"""Company for the runs of acceptance tests: with TEST_COMPANY set, every pool's workers hold runs of others as well.

What a test does to its own worker happens to them too. They must lose nothing by it, and change nothing for the test.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durableops.engine import commands
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.upkeep.drills import facts
from runs.models import Checkpoint, IdempotencyRecord, Receipt, Run
from tests.acceptance.processes import COMPANY, patiently

OF_EACH_KIND = 4
TENANT = "company"


def is_asked_for() -> bool:
    return bool(os.environ.get("TEST_COMPANY"))


class Company:
    """The company of one module of tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tenant = tenant = get_or_make_tenant(TENANT)
        starts = itertools.repeat(COMPANY, OF_EACH_KIND)
        self.runs = [
            start(kind, {"folder": str(folder)}, tenant=tenant, actor="tests").run_id
            for kind in itertools.chain.from_iterable(starts)
        ]

    def go_home(self) -> None:
        """Send everybody home; nobody has lost anything, and nothing went out that is not on record."""
        (self.folder / "home").touch()
        mine = Run.objects.filter(pk__in=self.runs)
        patiently(lambda: not mine.open().exists(), timeout=60, hoping_for="the end of the company's runs")
        assert set(mine.values_list("state", flat=True)) == {"succeeded"}
        effects = list(IdempotencyRecord.objects.filter(run_id__in=self.runs))
        sent = [json.loads(line)["key"] for line in (self.folder / "world").read_text().splitlines()]
        assert {effect.state for effect in effects} == {"succeeded"}
        assert set(sent) == {effect.key for effect in effects}
        assert len(sent) <= sum(effect.attempts for effect in effects), "something was sent without an intent"
        assert sum(self._errands()) == len(effects), "an errand was counted twice, or not at all"
        for run_id in self.runs:
            assert facts.foreign_writes(run_id) == []
            assert facts.cursor_regressions(run_id) == 0

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody of them in any hand meanwhile."""
        switch = commands.set_switch("tenant", actor="tests", reason="a test is to be alone", tenant=self._tenant)
        try:
            held = Run.objects.filter(pk__in=self.runs, state="running")
            patiently(lambda: not held.exists(), hoping_for="a company that has gone away")
            yield
        finally:
            commands.lift_switch(switch, actor="tests", reason="the test is over")

    def interruptions(self) -> int:
        """How often one of them lost its worker."""
        return Receipt.objects.filter(run_id__in=self.runs, lost_at__isnull=False).count()

    def _errands(self) -> list[int]:
        states = Checkpoint.objects.filter(run_id__in=self.runs, kind="finish").values_list("state", flat=True)
        return [json.loads(state or "{}")["errands"] for state in states]

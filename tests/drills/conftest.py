"""Playing a drill as a script does: the command in a process of its own, on the test database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durableops.upkeep.drills.registry import BUNDLED_APPS

CHECKOUT = Path(__file__).resolve().parents[2]
SABOTAGE = CHECKOUT / "tests" / "drills" / "sabotage"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a script sees of a drill."""

    exit_status: int
    report: dict[str, Any]

    @property
    def failed(self) -> list[str]:
        return [check["name"] for check in self.report["checks"] if not check["passed"]]

    def told(self, name: str) -> str:
        return next(check["detail"] for check in self.report["checks"] if check["name"] == name)


@pytest.fixture
def play(process_environment: dict[str, str], clean_queue: object) -> Callable[..., Outcome]:
    """Play a drill; `without` names the guard that is taken out of all its processes."""

    def play(*, drill: str = "ten-step", seed: int, without: str = "", **more: str) -> Outcome:
        # Given at once; the command would start over to add them.
        environment = process_environment | {"DURABLEOPS_APPS": ",".join(BUNDLED_APPS)} | more
        if without:
            environment |= {"SABOTAGE": without, "PYTHONPATH": str(SABOTAGE)}
        done = subprocess.run(
            [sys.executable, "manage.py", "drill", drill, "--short", "--json", "--seed", str(seed)],
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        [line] = done.stdout.splitlines() or [done.stderr]
        return Outcome(exit_status=done.returncode, report=json.loads(line))

    return play

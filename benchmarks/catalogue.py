"""Finding a benchmark by its name and running it in a process of its own, on a database of its own."""

from __future__ import annotations

import inspect
import json
import pkgutil
import subprocess
import sys
from importlib import import_module
from typing import Any

from benchmarks import measures
from benchmarks.scratch import CHECKOUT, scratch


class BenchmarkFailed(Exception):
    """The benchmark did not come to an end; the message is what it said last."""


def names() -> list[str]:
    """The benchmarks there are."""
    return sorted(module.name for module in pkgutil.iter_modules(measures.__path__))


def sizes_of(name: str) -> list[str]:
    """The sizes that a benchmark can be told."""
    parameters = inspect.signature(import_module(f"benchmarks.measures.{name}").measure).parameters
    return [each.name for each in parameters.values() if each.kind is each.KEYWORD_ONLY]


def run(name: str, **sizes: Any) -> dict[str, Any]:
    """Run one benchmark and return its object. Raises BenchmarkFailed."""
    with scratch() as place:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.inside", name, str(place.folder), json.dumps(sizes)],
            env=place.environment,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines() or ["it said nothing"]
            raise BenchmarkFailed(f"benchmark {name!r} failed: {last[-1]}\n{done.stderr[-4000:]}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

"""The process a benchmark runs in: its environment already names the scratch database. Prints one JSON object."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import django

from benchmarks.scratch import Place


def main(name: str, folder: str, sizes: str) -> None:
    """Run one measure and print what it found."""
    django.setup()
    measure = importlib.import_module(f"benchmarks.measures.{name}").measure
    result = measure(Place(environment=dict(os.environ), folder=Path(folder)), **json.loads(sizes))
    json.dump(result.as_json(), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])

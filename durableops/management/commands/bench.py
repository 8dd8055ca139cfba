"""`manage.py bench NAME`: one benchmark on a database of its own. What is measured lives in `benchmarks/`."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Run one benchmark on a scratch database. Missed targets are printed and change no exit status."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="density, engine, migrate, recovery or retention")
        parser.add_argument("--json", action="store_true", help="print exactly one JSON object")
        parser.add_argument(
            "--size", action="append", default=[], metavar="NAME=NUMBER", help="such as runs=400 or kills=30"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            # By name: benchmarks act on the machine, which must not depend on them.
            catalogue = import_module("benchmarks.catalogue")
            table = import_module("benchmarks.table")
        except ModuleNotFoundError as missing:
            raise CommandError(f"{missing.name} is missing: run it from a checkout of durableops.") from missing
        if options["name"] not in catalogue.names():
            raise CommandError(f"{options['name']!r} is no benchmark; there are {', '.join(catalogue.names())}.")
        sizes = _sizes(options["size"])
        if unknown := sizes.keys() - set(known := catalogue.sizes_of(options["name"])):
            raise CommandError(f"--size {min(unknown)} is not known; {options['name']} takes {', '.join(known)}.")
        try:
            found = catalogue.run(options["name"], **sizes)
        except catalogue.BenchmarkFailed as failed:
            raise CommandError(str(failed)) from failed
        self.stdout.write(json.dumps(found) if options["json"] else table.of_result(found))


def _sizes(given: list[str]) -> dict[str, float]:
    sizes: dict[str, float] = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            sizes[name] = int(number) if number.isdigit() else float(number)
        except ValueError:
            raise CommandError(f"--size {text} is not NAME=NUMBER, such as runs=400.") from None
    return sizes

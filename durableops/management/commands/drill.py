"""`manage.py drill NAME`: break real processes on purpose and report whether the promises held."""

from __future__ import annotations

import json
import os
import secrets
import sys
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.checks import TAG
from durableops.environment import complete
from durableops.upkeep.drills import registry, report
from durableops.upkeep.drills.registry import BUNDLED_APPS, DrillNotFound
from durableops.upkeep.drills.runner import run_drill

EVERY = "all"
SEEDS = 2**31


class Command(BaseCommand):
    requires_system_checks = [TAG]
    help = "Run a failure drill against real processes and store its report. Exits 0 only if every check held."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help=f"the drill, or {EVERY!r}")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
        parser.add_argument("--short", action="store_true", help="the least that proves it, where it has a long form")
        parser.add_argument("--seed", type=int, help="play it as it was played with this seed")

    def run_from_argv(self, argv: list[str]) -> None:
        """Start over with the apps of the bundled drills if they are not installed; its processes inherit them."""
        missing = [name for name in BUNDLED_APPS if not apps.is_installed(name) and _exists(name)]
        if missing:
            given = complete(os.environ, checkout=settings.BASE_DIR).get("DURABLEOPS_APPS", "")
            os.environ["DURABLEOPS_APPS"] = ",".join([*filter(None, given.split(",")), *missing])
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves
        super().run_from_argv(argv)

    def handle(self, *args: Any, **options: Any) -> None:
        names = registry.names() if options["name"] == EVERY else [options["name"]]
        seed = secrets.randbelow(SEEDS) if options["seed"] is None else options["seed"]
        reports = []
        for name in names:
            try:
                made = run_drill(name, seed=seed, short=options["short"])
            except DrillNotFound as error:
                raise CommandError(str(error)) from error
            reports.append(made)
            if not options["json"]:
                self.stdout.write(report.tell(made))
        passed = bool(reports) and all(made["passed"] for made in reports)
        if options["json"]:
            together = {"drill": EVERY, "passed": passed, "seed": seed, "drills": reports}
            self.stdout.write(json.dumps(together if options["name"] == EVERY else reports[0]))
        if not passed:
            sys.exit(1)


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False

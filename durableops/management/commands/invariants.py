"""`manage.py invariants`: every promise that a query can check. Exits with an error when one is broken."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine.database import ConnectionLost, Database
from durableops.upkeep.invariants import report
from durableops.upkeep.invariants.report import Finding, Report


class Command(BaseCommand):
    help = "Check every promise that a query can check. It only reads, and may run beside everything else."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
        parser.add_argument(
            "--grace",
            type=float,
            default=report.DEFAULT_GRACE_SECONDS,
            metavar="SECONDS",
            help="what upkeep may still have to put right is not broken before this (default: %(default)s)",
        )
        parser.add_argument(
            "--runs",
            type=int,
            default=report.DEFAULT_RUNS,
            help="look at the histories of so many of the newest runs, besides every open one (default: %(default)s)",
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=report.DEFAULT_TIMEOUT_SECONDS,
            metavar="SECONDS",
            help="the longest one check may take (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        database = Database(name="invariants")
        try:
            found = report.examine(
                database,
                grace_seconds=options["grace"],
                newest_runs=options["runs"],
                timeout_seconds=options["timeout"],
            )
        except ConnectionLost as lost:
            raise CommandError(f"nothing was checked, the database is away: {str(lost).splitlines()[0]}") from lost
        finally:
            database.close()
        if options["json"]:
            json.dump(found.as_json(), sys.stdout)
            self.stdout.write("")
        else:
            self._tell(found)
        if not found.passed:
            raise CommandError(f"{len(found.broken)} of {len(found.findings)} checks failed.")

    def _tell(self, found: Report) -> None:
        seen = found.looked_at
        self.stdout.write(f"{seen['open_runs']} open runs, the histories of {seen['newest_runs']} newest; {seen['at']}")
        for finding in found.findings:
            self._tell_one(finding)

    def _tell_one(self, finding: Finding) -> None:
        verdict = "ok    " if finding.passed else "BROKEN"
        explained = f"  ({finding.explained} explained)" if finding.explained else ""
        self.stdout.write(f"{verdict}  {finding.check.name.replace('_', ' ')}{explained}")
        if finding.complaint:
            self.stdout.write(f"        {finding.complaint}")
        for row in finding.sample:
            self.stdout.write(f"        {row['subject']}: {row['said']}")

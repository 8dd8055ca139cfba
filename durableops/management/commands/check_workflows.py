"""`manage.py check_workflows`: what a deploy of this code would do to the runs that are open. A gate for deploys."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine import gate
from durableops.engine.database import ConnectionLost, Database

CLEAN, NEEDS_REVIEW, WOULD_FAIL = 0, 3, 4


class Command(BaseCommand):
    help = (
        "Say how many open runs go on under this code, are migrated, fail to migrate, or need a person. It only reads. "
        f"Exits {CLEAN} if nobody is needed, {NEEDS_REVIEW} if a person is, {WOULD_FAIL} if a migration would fail."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        database = Database(name="check_workflows")
        try:
            found = gate.examine(database)
        except ConnectionLost as lost:
            raise CommandError(f"nothing was checked, the database is away: {str(lost).splitlines()[0]}") from lost
        finally:
            database.close()
        status = WOULD_FAIL if found.total(gate.FAIL) else NEEDS_REVIEW if found.total(gate.REVIEW) else CLEAN
        if options["json"]:
            self.stdout.write(json.dumps({"passed": status == CLEAN, "status": status, **found.as_json()}))
        else:
            self._tell(found)
        if status:
            sys.exit(status)

    def _tell(self, found: gate.Report) -> None:
        for plan in found.plans:
            target = "no code here" if plan.target is None else f"version {plan.target} here"
            counts = ", ".join(f"{plan.counts[verdict]} {verdict}" for verdict in gate.VERDICTS if plan.counts[verdict])
            self.stdout.write(f"{plan.workflow} v{plan.version} (plan {plan.plan_id}; {target}): {counts}")
            for sample in plan.samples:
                self.stdout.write(f"    {sample['verdict']} {sample['run']}: {sample['why']}")
        for source in found.sources:
            self.stdout.write(
                f"{source['workflow']} v{source['version']}: its code changed and its version did not; the runs go on "
                "with it."
            )
        if not found.plans:
            self.stdout.write("no run is open.")

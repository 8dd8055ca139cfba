"""`manage.py start WORKFLOW --input FILE`: start a run from a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import DurableOpsError
from durableops.management.given import json_of_file


class Command(BaseCommand):
    help = "Start a run. The same --key starts it once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workflow", help="name of the workflow; its newest version is started")
        parser.add_argument("--input", metavar="FILE", help="JSON object, or - for standard input (default: {})")
        parser.add_argument("--key", help="start key: asked for twice, it is one run")
        parser.add_argument("--tenant", default="default", help="whose run it is; made if new (default: %(default)s)")
        parser.add_argument(
            "--label", action="append", default=[], metavar="NAME=VALUE", help="to find it by; may be repeated"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        labels = _labels(options["label"])
        try:
            given = json_of_file(options["input"], what="input") if options["input"] else {}
            with transaction.atomic():  # a start that is refused leaves no tenant behind
                started = start(
                    options["workflow"],
                    given,
                    tenant=get_or_make_tenant(options["tenant"]),
                    actor="command line",
                    start_key=options["key"],
                    labels=labels,
                )
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({"run": str(started.run_id), "created": started.created}))
        else:
            self.stdout.write(f"{started.run_id} {'started' if started.created else 'was started before'}")


def _labels(given: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in labels:
            problem = "is not NAME=VALUE, such as region=north" if not equals else "names a label for the second time"
            raise CommandError(f"--label {text!r} {problem}.")
        labels[name] = value
    return labels

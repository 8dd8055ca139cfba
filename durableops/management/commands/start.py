"""`manage.py start WORKFLOW --input FILE`: start a run from a script."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.checkpoints.codec import parse_input
from durableops.conf import get_conf
from durableops.engine.start import start
from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import DurableOpsError


class Command(BaseCommand):
    help = "Start a run. The same --key starts it once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workflow")
        parser.add_argument("--input", type=argparse.FileType("rb"), help="JSON file, or - for standard input")
        parser.add_argument("--key", help="start key: asked for twice, it is one run")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            raw = options["input"].read() if options["input"] else b"{}"
            given = parse_input(raw, max_bytes=get_conf().payload_max_bytes)
            started = start(
                options["workflow"],
                given,
                tenant=get_or_make_tenant(options["tenant"]),
                actor="command line",
                start_key=options["key"],
                labels=dict(label.partition("=")[::2] for label in options["label"]),
            )
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            json.dump({"run": str(started.run_id), "created": started.created}, sys.stdout)
            self.stdout.write("")
        else:
            self.stdout.write(f"{started.run_id} {'started' if started.created else 'was started before'}")

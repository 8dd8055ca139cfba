"""`manage.py send_event NAME`: hand an event to the runs that wait for it."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.checkpoints.codec import parse_input
from durableops.engine.inbound import send_event
from durableops.engine.tenants import get_or_make_tenant
from durableops.errors import DurableOpsError


class Command(BaseCommand):
    help = "Send an event. With the same --key it is one event, however often it is sent."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--correlation", default="")
        parser.add_argument("--payload", default="null", help="JSON text")
        parser.add_argument("--key", help="the sender's own id of the event")
        parser.add_argument("--tenant", default="default")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            received = send_event(
                options["name"],
                tenant=get_or_make_tenant(options["tenant"]),
                actor="command line",
                correlation=options["correlation"],
                payload=parse_input(options["payload"], what="payload"),
                event_key=options["key"],
            )
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            json.dump(
                {"event": received.event_id, "created": received.created, "answered": received.answered}, sys.stdout
            )
            self.stdout.write("")
        else:
            self.stdout.write(f"event {received.event_id}: answered {received.answered} waits")

"""`manage.py send_event NAME`: hand an event to the runs that wait for it."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.engine.inbound import send_event
from durableops.errors import DurableOpsError
from durableops.management.given import existing_tenant, json_of_file, json_of_text


class Command(BaseCommand):
    help = "Send an event. With the same --key it is one event, however often it is sent."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the event, as the workflow waits for it")
        parser.add_argument("--correlation", default="", help="which of them: an order's number, say")
        payload = parser.add_mutually_exclusive_group()
        payload.add_argument("--payload", default="null", metavar="JSON", help="JSON text (default: %(default)s)")
        payload.add_argument("--payload-file", metavar="FILE", help="JSON file, or - for standard input")
        parser.add_argument("--key", help="the sender's own id of the event")
        parser.add_argument("--tenant", default="default", help="whose runs may hear it (default: %(default)s)")
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = existing_tenant(options["tenant"])
        file = options["payload_file"]
        try:
            received = send_event(
                options["name"],
                tenant=tenant,
                actor="command line",
                correlation=options["correlation"],
                payload=json_of_file(file, what="payload")
                if file
                else json_of_text(options["payload"], what="payload"),
                event_key=options["key"],
            )
        except DurableOpsError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            told = {"event": received.event_id, "created": received.created, "answered": received.answered}
            self.stdout.write(json.dumps(told))
            return
        arrived = "arrived" if received.created else "had arrived before"
        waits = "1 wait" if received.answered == 1 else f"{received.answered} waits"
        self.stdout.write(f"event {received.event_id} {arrived}: it has answered {waits}")

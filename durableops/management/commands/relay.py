"""`manage.py relay`: delivers the messages of the outbox. Upkeep does so, too; this is for more of them."""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from durableops.authoring import registry
from durableops.checks import TAG
from durableops.engine import django_side
from durableops.engine.relaying.relay import HandlersHang, Relay

logger = logging.getLogger("durableops.relay")


class Command(BaseCommand):
    help = "Run a relay: delivers messages of the outbox. Any number may run. SIGTERM lets what is under way finish."
    requires_system_checks = [TAG]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency", type=int, metavar="N", help="messages under way at once (DURABLEOPS_RELAY_CONCURRENCY)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        concurrency = options["concurrency"]
        if concurrency is not None and concurrency < 1:
            raise CommandError(f"--concurrency is {concurrency}; give a whole number from 1.")
        django_side.limit_connections()
        relay = Relay(concurrency=concurrency)

        def stop(signum: int, frame: FrameType | None) -> None:
            relay.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        known = ", ".join(tool.name for tool in registry.tools() if tool.safety == "outbox")
        logger.info("relay runs; it knows %s", known or "no outbox tool: name your apps in DURABLEOPS_APPS")
        status = 0
        try:
            relay.run()
        except HandlersHang:
            logger.exception("the relay ends")
            status = 1
        logger.info("relay has ended")
        # Threads that never come back would keep the process.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

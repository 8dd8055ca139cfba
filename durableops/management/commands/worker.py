"""`manage.py worker`: one worker process with its supervisor."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from durableops.authoring import registry
from durableops.checks import TAG
from durableops.engine.supervisor import Supervisor

logger = logging.getLogger("durableops.worker")


class Command(BaseCommand):
    help = "Run a worker: claims runs and moves them. Stop it with SIGTERM; it hands back what it cannot finish."
    requires_system_checks = [TAG]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency", type=int, metavar="N", help="runs held at once (DURABLEOPS_CONCURRENCY, else 16)"
        )
        parser.add_argument(
            "--isolated",
            action="store_true",
            help='take only runs whose step asked for isolation="process", one at a time; other workers start this one',
        )

    def handle(self, *args: Any, **options: Any) -> None:
        connections.close_all()  # nothing may be open when the child is forked
        concurrency = 1 if options["isolated"] else options["concurrency"]
        if concurrency is not None and concurrency < 1:
            raise CommandError(f"--concurrency is {concurrency}; give a whole number from 1.")
        supervisor = Supervisor(concurrency=concurrency, isolated=options["isolated"])
        supervisor.take_signals()
        known = ", ".join(f"{each.name} v{each.version}" for each in registry.workflows())
        logger.info("worker runs; it knows %s", known or "no workflow: name your apps in DURABLEOPS_APPS")
        supervisor.run()
        logger.info("worker has ended")

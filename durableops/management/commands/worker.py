"""`manage.py worker`: one worker process with its supervisor."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connections

from durableops.authoring import registry
from durableops.checks import TAG
from durableops.engine.supervisor import Supervisor

logger = logging.getLogger("durableops.worker")


class Command(BaseCommand):
    help = "Run a worker: claims runs and moves them. Stop it with SIGTERM; it hands back what it cannot finish."
    requires_system_checks = [TAG]

    def handle(self, *args: Any, **options: Any) -> None:
        connections.close_all()  # nothing may be open when the child is forked
        known = ", ".join(f"{each.name} v{each.version}" for each in registry.workflows())
        logger.info("worker runs; it knows %s", known or "no workflow: name your apps in DURABLEOPS_APPS")
        Supervisor().run()
        logger.info("worker has ended")

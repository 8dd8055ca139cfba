"""`manage.py upkeep`: the rounds that notice lost workers, due timers and lost bells."""

from __future__ import annotations

import logging
from typing import Any

from django.core.management.base import BaseCommand

from durableops.checks import TAG
from durableops.upkeep.rounds import Rounds

logger = logging.getLogger("durableops.upkeep")


class Command(BaseCommand):
    help = "Run upkeep: take back runs of lost workers, fire timers, ring for what is claimable. Several may run."
    requires_system_checks = [TAG]

    def handle(self, *args: Any, **options: Any) -> None:
        rounds = Rounds()
        rounds.take_signals()
        logger.info("upkeep runs")
        rounds.run()
        logger.info("upkeep has ended")

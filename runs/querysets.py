"""The reading vocabulary of runs: chainable, one line of meaning each, no writes."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import models

from runs.states import OPEN, State

if TYPE_CHECKING:
    from runs.models import Run  # noqa: F401


class RunQuerySet(models.QuerySet["Run"]):
    def open(self) -> RunQuerySet:
        """Runs that are not finished."""
        return self.filter(state__in=sorted(OPEN))

    def claimable(self, at: datetime) -> RunQuerySet:
        """Runs a worker could take at `at`, switches aside."""
        return self.filter(state=State.QUEUED, paused=False, cancel_requested=False, due_at__lte=at)

    def of_ended_workers(self) -> RunQuerySet:
        """Running runs whose worker is known to be gone."""
        return self.filter(state=State.RUNNING, worker__ended_at__isnull=False)

    def overdue(self, at: datetime) -> RunQuerySet:
        """Open runs whose deadline has passed."""
        return self.open().filter(deadline_at__lte=at)

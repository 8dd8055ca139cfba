"""The reading vocabulary of runs: chainable, one line of meaning each, no writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from runs.states import OPEN

if TYPE_CHECKING:
    from runs.models import Run  # noqa: F401


class RunQuerySet(models.QuerySet["Run"]):
    def open(self) -> RunQuerySet:
        """Runs that are not finished."""
        return self.filter(state__in=sorted(OPEN))

"""Reports of failure drills: recovery proved against real processes."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class DrillReport(models.Model):
    """One drill that was run. `report` is the object that `manage.py drill --json` printed."""

    drill = models.CharField(max_length=60)
    passed = models.BooleanField()
    seed = models.BigIntegerField()
    seconds = models.FloatField()
    report = models.JSONField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_drill_report"
        indexes = [models.Index(models.F("drill"), models.F("at").desc(), name="drill_report_newest")]

"""The plans that runs follow: what gives a workflow version its meaning, kept after the code is gone."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class WorkflowPlan(models.Model):
    """One meaning of one workflow version. Checkpoints point here instead of repeating version and hashes."""

    id = models.AutoField(primary_key=True)
    workflow = models.CharField(max_length=100)
    version = models.PositiveIntegerField()
    schema_version = models.PositiveIntegerField()
    schema_hash = models.CharField(max_length=64)
    plan_hash = models.CharField(max_length=64)
    plan = models.JSONField()
    source_fingerprint = models.CharField(max_length=64)
    first_seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_workflow_plan"
        constraints = [
            models.UniqueConstraint(
                fields=["workflow", "version", "schema_version", "schema_hash", "plan_hash"], name="plan_meaning_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} v{self.version}"

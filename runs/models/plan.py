"""The plans that runs follow: what gives a workflow version its meaning, kept after the code is gone."""

from __future__ import annotations

from django.db import models
from django.db.models import Value
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
    schema = models.JSONField(default=dict, db_default=Value({}, output_field=models.JSONField()))
    """The state's fields and their types, so that a difference can be named after the code is gone."""
    waits = models.JSONField(default=dict, db_default=Value({}, output_field=models.JSONField()))
    """For each step, the waits that can be read from its code: no part of the meaning, but what a waiting run needs."""
    waits_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    source_fingerprint = models.CharField(max_length=64)
    """Of the code that recorded it first; what others had since is in `PlanSource`."""
    first_seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_workflow_plan"
        constraints = [
            models.UniqueConstraint(
                fields=["workflow", "version", "schema_version", "schema_hash", "plan_hash", "waits_hash"],
                name="plan_meaning_unique",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} v{self.version}"


class PlanSource(models.Model):
    """One text of the code that workers ran under one plan. A second one is a change that raised no version."""

    plan = models.ForeignKey(WorkflowPlan, on_delete=models.CASCADE, related_name="sources", db_index=False)
    fingerprint = models.CharField(max_length=64)
    first_seen_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())
    """When a worker that has it started last."""

    class Meta:
        db_table = "runs_plan_source"
        constraints = [models.UniqueConstraint(fields=["plan", "fingerprint"], name="plan_source_unique")]

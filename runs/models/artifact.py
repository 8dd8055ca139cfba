"""Files a run produced. The bytes live in Django's storage under their content hash."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

DATA_CLASSES = (
    "input",
    "checkpoint",
    "decision",
    "effect_key",
    "effect_summary",
    "effect_body",
    "raw_prompt",
    "temp_file",
    "deliverable",
    "event",
    "audit",
)


class Artifact(models.Model):
    """One named file of a run. The same name with the same bytes is the same artifact."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="artifacts", db_index=False)
    step_id = models.CharField(max_length=100)
    name = models.CharField(max_length=255)
    data_class = models.CharField(max_length=14)
    content_type = models.CharField(max_length=100)
    content_hash = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    path = models.CharField(max_length=500)
    fence = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_artifact"
        constraints = [
            models.UniqueConstraint(fields=["run", "name", "content_hash"], name="artifact_content_unique"),
            models.CheckConstraint(
                condition=models.Q(data_class__in=sorted(DATA_CLASSES)), name="artifact_data_class_known"
            ),
        ]

"""Files of runs. The bytes live in Django's storage; a file is there for people and code once a row here names it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
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
READERS = ("members", "payloads", "prompts")


class Artifact(models.Model):
    """One named file of a run. The same name with the same bytes is the same artifact."""

    run = models.ForeignKey("Run", on_delete=models.PROTECT, related_name="artifacts", db_index=False)
    step_id = models.CharField(max_length=100)
    name = models.CharField(max_length=255)
    data_class = models.CharField(max_length=14)
    readable_by = models.CharField(max_length=8, default="payloads", db_default="payloads")
    """Whose eyes it is for: every member of the tenant, those with payload sight, those who may read prompts."""
    content_type = models.CharField(max_length=100)
    content_hash = models.CharField(max_length=64)
    """SHA-256 of what was given, before it was sealed."""
    size_bytes = models.BigIntegerField()
    path = models.CharField(max_length=500)
    """Name in the storage; no two artifacts share one, so that removing a file never takes another's."""
    sealed_with = models.CharField(max_length=16, default="", db_default="", blank=True)
    """Which key the bytes in the storage are encrypted with; empty when they are not."""
    fence = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_artifact"
        constraints = [
            models.UniqueConstraint(fields=["run", "name", "content_hash"], name="artifact_content_unique"),
            models.CheckConstraint(condition=Q(data_class__in=sorted(DATA_CLASSES)), name="artifact_data_class_known"),
            models.CheckConstraint(condition=Q(readable_by__in=sorted(READERS)), name="artifact_readers_known"),
            # What is kept apart from decisions is not readable with the rights for them, whatever its author said.
            models.CheckConstraint(
                condition=~Q(data_class__in=["raw_prompt", "temp_file"])
                | (Q(readable_by="prompts") & ~Q(sealed_with="")),
                name="artifact_private_is_sealed",
            ),
        ]


class LooseFile(models.Model):
    """A file in the storage that no artifact names: on its way in (written first, named by a commit), or out."""

    path = models.CharField(max_length=500, unique=True)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="+", db_index=False)
    run_id = models.UUIDField(null=True)
    """The run that writes it; its row may be gone."""
    worker_id = models.UUIDField(null=True)
    """The worker in whose hand the run was then: once it is not there, nothing will name the file any more."""
    abandon_after = models.DateTimeField(null=True)
    """Files that come from outside: until when their sender may still complete them."""
    doomed = models.BooleanField(default=False, db_default=False)
    """Whether it is to be removed; a doomed file is never named again."""
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_loose_file"
        constraints = [
            models.CheckConstraint(
                condition=Q(doomed=True) | Q(worker_id__isnull=False) | Q(abandon_after__isnull=False),
                name="loose_file_has_an_end",
            ),
        ]

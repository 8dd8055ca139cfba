"""Who changed what and why. The application's database role can add rows here and nothing else."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class AuditEntry(models.Model):
    """One change made by a person or an API client, written by the transaction that made it."""

    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=200)
    verb = models.CharField(max_length=60)
    target_kind = models.CharField(max_length=40)
    target_id = models.CharField(max_length=100)
    reason = models.TextField(default="", blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        db_table = "runs_audit_entry"
        indexes = [
            # Run page: what people did to this one.
            models.Index(fields=["target_kind", "target_id", "id"], name="audit_of_target"),
            # Audit page: newest first.
            models.Index(models.F("at").desc(), models.F("id").desc(), name="audit_newest"),
        ]

"""What people set for many runs at once: switches that pause everything, a tenant, or a workflow."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

SCOPES = ("all", "tenant", "workflow")


class PauseSwitch(models.Model):
    """While it stands, nothing in its scope is claimed and what runs is handed back at its next commit."""

    scope = models.CharField(max_length=8)
    tenant = models.ForeignKey("Tenant", null=True, on_delete=models.CASCADE, related_name="+")
    workflow = models.CharField(max_length=100, default="", blank=True)
    actor = models.CharField(max_length=200)
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "runs_pause_switch"
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="all", tenant=None, workflow="")
                | Q(scope="tenant", tenant__isnull=False, workflow="")
                | (Q(scope="workflow") & ~Q(workflow="")),
                name="pause_switch_scope_complete",
            ),
            models.UniqueConstraint(
                fields=["scope", "tenant", "workflow"], name="pause_switch_unique", nulls_distinct=False
            ),
        ]

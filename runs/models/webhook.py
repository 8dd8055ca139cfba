"""Webhook endpoints: addresses of other systems that want to hear of a tenant's events."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.ids import uuid7


class WebhookEndpoint(models.Model):
    """One subscriber. Its secrets are stored encrypted, and shown once, when they are made."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tenant = models.ForeignKey("Tenant", on_delete=models.PROTECT, related_name="webhook_endpoints")
    url = models.TextField()
    description = models.CharField(max_length=200, default="", blank=True)
    event_types = models.JSONField(default=list)
    """Names of the events it wants; empty is all of them."""
    enabled = models.BooleanField(default=True)
    disabled_why = models.CharField(max_length=200, default="", blank=True)
    secret = models.TextField()
    """What its messages are signed with, encrypted (durableops.sealing)."""
    former_secret = models.TextField(default="", blank=True)
    """The one before the last rotation, which signs as well until `former_until`."""
    sealed_with = models.CharField(max_length=16)
    """Which key of the installation both are encrypted with."""
    former_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=200)
    removed_at = models.DateTimeField(null=True)
    """Removed endpoints get nothing and are not shown; what was delivered still names them."""

    class Meta:
        db_table = "runs_webhook_endpoint"
        constraints = [
            models.CheckConstraint(
                condition=~Q(secret="") & ~Q(sealed_with=""), name="webhook_endpoint_secret_is_sealed"
            ),
            models.CheckConstraint(
                condition=Q(former_secret="", former_until=None)
                | (~Q(former_secret="") & Q(former_until__isnull=False)),
                name="webhook_endpoint_former_secret_ends",
            ),
            models.CheckConstraint(
                condition=Q(enabled=True, disabled_why="", removed_at=None) | (Q(enabled=False) & ~Q(disabled_why="")),
                name="webhook_endpoint_disabled_for_a_reason",
            ),
        ]
